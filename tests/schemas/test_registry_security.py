"""The registry of a broker with an authorizer: logins, rights and TLS, as its clients meet them."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

import headrace
from harness.certificates import Authority
from harness.headrace import COMMAND, Headrace
from harness.wait import eventually
from headrace.client.admin.acls import Acl, AclFilter, AclOperation, AclPattern, AclResource
from headrace.machines.schema_registry.routes import RIGHTS, To
from headrace.schemas import Registry, RegistryRefused, Schema, SchemaUnknown

PASSWORD = "a secret: of alice"
CLICK = '{"type":"record","name":"Click","fields":[{"name":"ad","type":"string"}]}'
ORDER = '{"type":"record","name":"Order","fields":[{"name":"click","type":"Click"}]}'
CLUSTER = "kafka-cluster"


class SecureRegistry:
    """A broker with http and https, an administrator, and alice, who has no rights yet."""

    def __init__(self, broker: Headrace, authority: Authority) -> None:
        self.broker = broker
        self.authority = authority
        self.admin = headrace.Admin(f"127.0.0.1:{broker.port}")
        for user in ("alice", "root"):
            self.admin.set_password(user, PASSWORD)

    def url(self, scheme: str = "http") -> str:
        output = (self.broker.directory / "output.txt").read_text()
        url = re.findall(rf"address=({scheme}://\S+)/metrics", output)[-1]
        return str(url).replace("127.0.0.1", "localhost")

    def allow(self, operation: AclOperation, topic: str, principal: str = "User:alice") -> Acl:
        resource = AclResource.CLUSTER if topic == CLUSTER else AclResource.TOPIC
        rule = Acl(resource, topic, principal, operation)
        self.admin.create_acls([rule])
        return rule

    def forget_rules(self) -> None:
        self.admin.delete_acls([AclFilter(pattern=AclPattern.ANY)])

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "alice",
        password: str = PASSWORD,
    ) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        if user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url() + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureRegistry]:
    directory = tmp_path_factory.mktemp("secure")
    authority = Authority(directory / "certificates")
    settings = {
        "authorizer.class.name": "standard",
        "super.users": "User:ANONYMOUS;User:root",  # by Kafka's protocol, on 127.0.0.1
        "headrace.http.listeners": "http://127.0.0.1:0,https://127.0.0.1:0",
        "listener.name.https.ssl.keystore.location": str(authority.issue("registry").both),
    }
    with Headrace(directory, settings) as broker:
        secure = SecureRegistry(broker, authority)
        yield secure
        secure.admin.close()


@pytest.fixture(autouse=True)
def no_rules(secure: SecureRegistry) -> None:
    secure.forget_rules()


def confluent(secure: SecureRegistry, **more: str) -> SchemaRegistryClient:
    settings = {"url": secure.url("https"), "ssl.ca.location": str(secure.authority.certificate)}
    return SchemaRegistryClient(settings | {key.replace("_", "."): value for key, value in more.items()})


def test_confluents_client_with_a_password_over_tls(secure: SecureRegistry) -> None:
    secure.allow(AclOperation.WRITE, "clicks")
    with confluent(secure, basic_auth_user_info=f"alice:{PASSWORD}") as client:
        id = client.register_schema("clicks-value", ConfluentSchema(CLICK, "AVRO"))
        assert client.get_schema(id).schema_str == CLICK
        assert client.get_subjects() == ["clicks-value"]
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema("payments-value", ConfluentSchema(CLICK, "AVRO"))
        assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
        assert "denied operation Write on Subject: payments-value" in str(refused.value)
        with pytest.raises(SchemaRegistryError) as refused:
            client.delete_subject("clicks-value")
        assert refused.value.error_code == 40301


@pytest.mark.parametrize("login", [{}, {"basic_auth_user_info": "alice:wrong"}])
def test_confluents_client_without_a_password(secure: SecureRegistry, login: dict[str, str]) -> None:
    with confluent(secure, **login) as client, pytest.raises(SchemaRegistryError) as refused:
        client.get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 40101)


def test_a_password_in_the_address(secure: SecureRegistry) -> None:
    secure.allow(AclOperation.DESCRIBE, "clicks")
    url = secure.url("https").replace("https://", f"https://alice:{quote(PASSWORD, safe='')}@")
    with (
        SchemaRegistryClient({"url": url, "ssl.ca.location": str(secure.authority.certificate)}) as client,
        pytest.raises(SchemaRegistryError) as unknown,
    ):
        client.get_versions("clicks-never-there-value")
    assert unknown.value.error_code == 40301


def test_our_client(secure: SecureRegistry) -> None:
    secure.allow(AclOperation.WRITE, "ours")
    registry = Registry(secure.url(), user="alice", password=PASSWORD)
    id = registry.register("ours-value", Schema(CLICK))
    assert registry.schema(id).text == CLICK
    with pytest.raises(RegistryRefused, match="Unauthorized") as refused:
        Registry(secure.url()).subjects()
    assert refused.value.code == 40101
    assert "user:password@host" in refused.value.advice
    with pytest.raises(RegistryRefused, match="denied operation Describe on Subject: payments-value"):
        registry.versions("payments-value")


def test_the_command_line_over_tls(secure: SecureRegistry) -> None:
    secure.allow(AclOperation.WRITE, "lines")
    secure.ask("POST", "/subjects/lines-value/versions", {"schema": CLICK})
    url = secure.url("https").replace("https://", f"https://alice:{quote(PASSWORD, safe='')}@")
    run = subprocess.run(
        [*COMMAND, "schema", "list", "--registry", url],
        env=os.environ | {"SSL_CERT_FILE": str(secure.authority.certificate)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout.split() == ["lines-value"], run.stderr
    assert PASSWORD not in run.stderr


@pytest.mark.parametrize(
    "path", [path for path in RIGHTS if To.SUBJECT in {r.to for r in RIGHTS[path].values()}]
)
def test_every_route_of_a_subject_over_the_network(secure: SecureRegistry, path: str) -> None:
    """× {no login, wrong password, no right, the right}."""
    for method, right in RIGHTS[path].items():
        target = path.replace("/*", "/routes-value", 1).replace("/*", "/1")
        body = {"schema": CLICK, "compatibility": "NONE", "mode": "READWRITE"} if method != "GET" else None
        assert secure.ask(method, target, body, user=None)[1]["error_code"] == 40101
        assert secure.ask(method, target, body, password="wrong")[1]["error_code"] == 40101
        assert secure.ask(method, target, body)[1]["error_code"] == 40301
        rule = secure.allow(AclOperation[right.operation.name], "routes")
        status, said = secure.ask(method, target, body)
        assert status not in (401, 403), said
        secure.admin.delete_acls([AclFilter(AclResource.TOPIC, "routes", pattern=AclPattern.LITERAL)])
        assert rule is not None
        assert secure.ask(method, target, body)[1]["error_code"] == 40301
        if (method, path) == ("POST", "/subjects/*/versions"):
            assert status == 200


def test_what_nobody_showed_is_not_there(secure: SecureRegistry) -> None:
    for topic in ("seen", "unseen"):
        text = CLICK.replace("Click", topic.title())
        status, said = secure.ask("POST", f"/subjects/{topic}-value/versions", {"schema": text}, user="root")
        assert status == 200, said
    ids = {
        topic: secure.ask("GET", f"/subjects/{topic}-value/versions/1", user="root")[1]
        for topic in ("seen", "unseen")
    }
    secure.allow(AclOperation.DESCRIBE, "seen")
    assert secure.ask("GET", "/subjects") == (200, ["seen-value"])
    for query in ("", "?format=serialized", "?latestOnly=true&deleted=true"):
        status, found = secure.ask("GET", f"/schemas{query}")
        assert [one["subject"] for one in found] == ["seen-value"], query
    hidden, shown = ids["unseen"], ids["seen"]
    for rest in ("", "/schema", "/subjects", "/versions", "?format=serialized"):
        assert secure.ask("GET", f"/schemas/ids/{shown['id']}{rest}")[0] == 200
        refused = secure.ask("GET", f"/schemas/ids/{hidden['id']}{rest}")
        never = secure.ask("GET", f"/schemas/ids/123456789{rest}")
        assert refused[0] == never[0] == 404
        assert refused[1]["message"].replace(str(hidden["id"]), "N") == never[1]["message"].replace(
            "123456789", "N"
        )
    for rest in ("", "/ids"):
        assert secure.ask("GET", f"/schemas/guids/{shown['guid']}{rest}")[0] == 200
        assert secure.ask("GET", f"/schemas/guids/{hidden['guid']}{rest}")[0] == 404


def test_a_reference_to_a_schema_that_is_not_shown(secure: SecureRegistry) -> None:
    """Otherwise whoever may write one topic could have the schema of another one compared."""
    secure.ask("POST", "/subjects/parts-value/versions", {"schema": CLICK}, user="root")
    secure.allow(AclOperation.WRITE, "whole")
    reference = {"name": "Click", "subject": "parts-value", "version": 1}
    body = {"schema": ORDER, "references": [reference]}
    hidden = secure.ask("POST", "/subjects/whole-value/versions", body)
    missing = secure.ask(
        "POST", "/subjects/whole-value/versions", body | {"references": [reference | {"subject": "no-value"}]}
    )
    assert (hidden[0], hidden[1]["error_code"]) == (422, 42201)
    assert hidden[1]["message"].replace("parts", "no") == missing[1]["message"]
    assert secure.ask("GET", "/subjects/whole-value/versions")[0] == 404
    secure.allow(AclOperation.DESCRIBE, "parts")
    assert secure.ask("POST", "/subjects/whole-value/versions", body)[0] == 200
    assert secure.ask("GET", "/subjects/parts-value/versions/1/referencedby")[0] == 200
    secure.forget_rules()
    secure.allow(AclOperation.DESCRIBE, "parts")
    assert secure.ask("GET", "/subjects/parts-value/versions/1/referencedby") == (200, [])


def test_levels_and_modes_of_all_subjects(secure: SecureRegistry) -> None:
    for path, body in (("/config", {"compatibility": "FULL"}), ("/mode", {"mode": "READWRITE"})):
        assert secure.ask("PUT", path, body)[1]["error_code"] == 40301
        secure.allow(AclOperation.DESCRIBE, CLUSTER)
        assert secure.ask("GET", path)[0] == 200
        assert secure.ask("PUT", path, body)[1]["error_code"] == 40301
        secure.allow(AclOperation.ALTER, CLUSTER)
        assert secure.ask("PUT", path, body)[0] == 200
        assert secure.ask("DELETE", path)[0] == 200
        secure.forget_rules()


def test_nobody_takes_the_last_id_from_the_subjects_of_others(secure: SecureRegistry) -> None:
    """All subjects share the ids, and in import mode clients choose them."""
    secure.allow(AclOperation.ALL, "orders")
    subject = "/mode/orders-value"
    status, told = secure.ask("PUT", subject, {"mode": "IMPORT"})
    assert (status, told["error_code"]) == (403, 40301)
    assert "ALTER on cluster" in told["message"]
    assert secure.ask("PUT", subject, {"mode": "READONLY"})[0] == 200
    secure.allow(AclOperation.ALTER, CLUSTER)
    assert secure.ask("PUT", subject, {"mode": "IMPORT"})[0] == 200
    assert secure.ask("DELETE", subject)[0] == 200


def test_metrics(secure: SecureRegistry) -> None:
    def status(user: str | None) -> int:
        headers = {}
        if user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
        try:
            with urlopen(Request(f"{secure.url()}/metrics", headers=headers), timeout=60) as answer:
                assert b"headrace_logins_refused_total" in answer.read()
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    assert status(None) == 401
    assert status("alice") == 403
    secure.allow(AclOperation.DESCRIBE, CLUSTER)
    assert status("alice") == 200


def test_a_password_is_in_no_log(secure: SecureRegistry) -> None:
    secure.ask("GET", "/subjects", password="planted-secret")
    output = secure.broker.directory / "output.txt"
    eventually(lambda: "login_refused" in output.read_text(), True)
    said = output.read_text()
    assert "planted-secret" not in said
    assert base64.b64encode(b"alice:planted-secret").decode() not in said


def test_a_new_certificate_without_a_restart(secure: SecureRegistry) -> None:
    host, _, port = secure.url("https").removeprefix("https://").partition(":")

    def shown() -> str:
        return ssl.get_server_certificate((host, int(port)))

    before = shown()
    renewed = secure.authority.issue("registry").both  # of the same name, and in the same file
    assert str(renewed) == secure.broker.settings["listener.name.https.ssl.keystore.location"]
    eventually(lambda: shown() != before, True, timeout_s=30)


def test_tls_handshakes_that_are_none(secure: SecureRegistry) -> None:
    """HTTP in the clear on the https port is closed, and the next client is served."""
    url = secure.url("https").replace("https://", "http://")
    with pytest.raises(OSError):
        urlopen(url, timeout=30)
    with confluent(secure, basic_auth_user_info=f"alice:{PASSWORD}") as client:
        assert isinstance(client.get_subjects(), list)


def test_an_unknown_schema_is_unknown_to_super_users_too(secure: SecureRegistry) -> None:
    registry = Registry(secure.url(), user="root", password=PASSWORD)
    with pytest.raises(SchemaUnknown):
        registry.versions("never-there")
