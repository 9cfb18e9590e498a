"""HTTP clients: which requests need a login or a right, who gets in, and who is refused and how."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from harness.rules import Rules
from harness.tokens import Key, claims_at, key_set, token_of
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.http.messages import HttpHead, HttpRequest, HttpResponse
from headrace.machines.schema_registry.routes import RIGHTS, To, find_route, topic_of
from headrace.machines.security.scram import SHA_256, SHA_512, salt_password
from headrace.node import password_queue
from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.bearer_checks import BearerCheck
from headrace.node.connection import ANONYMOUS, Connection
from headrace.node.effects import Report
from headrace.node.http_logins import HttpClient
from headrace.node.key_source import WAITING_MAX
from headrace.node.password_check import PasswordCheck
from headrace.node.settings import Settings
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.simulator.manual_host import ManualHost

PASSWORD = "alice's: secret"
ALICE = "User:alice"
DELAY_S = 0.1  # connection.failed.authentication.delay.ms


def basic(user: str, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Web:
    """A node with HTTP, its users and rules, and requests of clients."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, has_rules: bool = False) -> None:
        texts = {key.replace("_", "."): value for key, value in (settings or {}).items()}
        self.host = ManualHost({"headrace.metrics.port": "0"} | texts)
        if has_rules:
            self.set_password()  # later nobody may do that
        self.rules = Rules(self.host) if has_rules else None
        self.told: list[HttpResponse | None] = []

    def client(self, listener: str = "HTTP", principal: str = ANONYMOUS) -> HttpClient:
        connection = Connection(0, listener=listener, address="10.1.1.1", principal=principal)
        return self.host.node.http_clients.meet(connection)

    def set_password(self, user: str = "alice", password: str = PASSWORD) -> None:
        salted = salt_password(SHA_512, password, b"salt", 4096)
        given = ScramCredentialUpsertion(
            name=user, mechanism=SHA_512.id, iterations=4096, salt=b"salt", salted_password=salted
        )
        self.host.ask(AlterUserScramCredentialsRequest(upsertions=[given]), 0, self.host.connect())

    def remove(self, user: str = "alice") -> None:
        gone = ScramCredentialDeletion(name=user, mechanism=SHA_512.id)
        self.host.ask(AlterUserScramCredentialsRequest(deletions=[gone]), 0, self.host.connect())

    def begin(self, client: HttpClient, method: str, target: str, header: str | None = None) -> None:
        headers = () if header is None else (("authorization", header),)
        head = HttpHead(method, target, headers)
        clients = self.host.node.http_clients
        clients.judge(self.host.clock.now(), client, head, lambda now, said: self.told.append(said))
        self.host.settle()

    def ask(
        self, client: HttpClient, method: str = "GET", target: str = "/subjects", header: str | None = None
    ) -> int:
        """The code of the refusal; 0 if there is none."""
        self.begin(client, method, target, header)
        if not self.told:
            self.host.advance(DELAY_S)
        (said,) = self.told
        self.told.clear()
        return 0 if said is None else int(json.loads(said.body)["error_code"])

    def reports(self) -> list[dict[str, Any]]:
        return [
            one.facts for one in self.host.effects if isinstance(one, Report) and one.event == "login_refused"
        ]


REQUIRED = {"headrace_http_login_required": "true"}


class TestLogins:
    def test_without_a_login_and_an_authorizer_nobody_is_asked(self) -> None:
        web = Web()
        assert web.ask(web.client()) == 0
        assert web.ask(web.client(), "PUT", "/config") == 0
        assert web.ask(web.client(), header="Basic nonsense") == 0
        assert web.host.node.http_clients.sees(web.client()) is None

    def test_a_password_lets_its_user_in(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        client = web.client()
        assert web.ask(client, header=basic("alice")) == 0
        assert client.connection.principal == ALICE

    @pytest.mark.parametrize(
        "header",
        [
            *(basic("alice", "wrong"), basic("bob"), basic("alice", ""), basic("", PASSWORD)),
            *("Basic", "Basic %%%", "Basic YWxpY2U=", "Bearer abc", "Bearer", "Digest x", "", "alice"),
            "Basic " + base64.b64encode(b"alice\0:" + PASSWORD.encode()).decode(),
            "Basic " + base64.b64encode(b"bob\0alice:" + PASSWORD.encode()).decode(),
            "Basic " + base64.b64encode(b"\xff\xfe:" + PASSWORD.encode()).decode(),
            "Basic " + base64.b64encode(b"alice:" + b"x" * 20_000).decode(),
        ],
    )
    def test_others_are_refused_after_a_delay_and_lose_their_connection(self, header: str) -> None:
        web = Web(REQUIRED)
        web.set_password()
        client = web.client()
        web.begin(client, "GET", "/subjects", header)
        web.host.advance(DELAY_S / 2)
        assert web.told == []  # not before the delay
        web.host.advance(DELAY_S / 2)
        (said,) = web.told
        assert said is not None
        assert said.status == 401
        assert json.loads(said.body) == {"error_code": 40101, "message": "Unauthorized"}
        assert ("Connection", "close") in said.headers
        assert dict(said.headers)["WWW-Authenticate"].startswith("Basic ")
        assert client.connection.principal == ANONYMOUS
        (report,) = web.reports()
        assert report["address"] == "10.1.1.1"
        assert PASSWORD not in repr(report)
        assert header == "" or header not in repr(report)

    def test_the_client_is_not_told_whether_the_user_exists(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        answers = []
        for user in ("alice", "bob"):
            web.begin(web.client(), "GET", "/", basic(user, "wrong"))
            web.host.advance(DELAY_S)
            answers.append(web.told.pop())
        assert answers[0] == answers[1]

    def test_unknown_users_cost_the_same_work(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        web.host.runs_jobs = False
        for user in ("alice", "bob"):
            web.begin(web.client(), "GET", "/", basic(user, "wrong"))
        (first,) = web.host.jobs
        web.host.run_job()
        web.host.settle()
        (second,) = web.host.jobs
        known, unknown = first.job, second.job
        assert isinstance(known, PasswordCheck)
        assert isinstance(unknown, PasswordCheck)
        assert (known.mechanism, unknown.mechanism) == (SHA_512, SHA_512)
        assert unknown.credential is None
        assert unknown.like is not None
        assert unknown.like.iterations == 4096

    def test_passwords_that_wait_for_their_check_are_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Clients may hang up and come again: no limit of connections counts."""
        monkeypatch.setattr(password_queue, "WAITING_MAX", 5)
        web = Web(REQUIRED)
        web.set_password()
        web.host.runs_jobs = False
        for _ in range(8):
            web.begin(web.client(), "GET", "/subjects", basic("alice", "wrong"))
        assert len(web.host.jobs) == 1  # one at a time
        web.host.advance(DELAY_S)
        assert [said.status for said in web.told if said is not None] == [401] * 2
        web.host.run_jobs()
        web.host.advance(DELAY_S)
        assert len(web.told) == 8
        web.told.clear()
        web.host.runs_jobs = True
        assert web.ask(web.client(), header=basic("alice")) == 0

    def test_a_client_that_has_gone_takes_its_check_back(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        web.host.runs_jobs = False
        clients = [web.client() for _ in range(3)]
        for client in clients:
            web.begin(client, "GET", "/subjects", basic("alice", "wrong"))
        for client in clients:
            web.host.node.http_clients.forget(client)
        web.host.run_job()
        web.host.settle()
        assert not web.host.jobs

    def test_without_a_header_it_is_asked_for_one_at_once(self) -> None:
        web = Web(REQUIRED)
        client = web.client()
        assert web.ask(client) == 40101
        assert web.reports() == []

    def test_what_was_proved_is_not_computed_again_on_the_same_connection(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        client = web.client()
        assert web.ask(client, header=basic("alice")) == 0
        web.host.runs_jobs = False
        assert web.ask(client, header=basic("alice")) == 0
        assert not web.host.jobs
        web.begin(web.client(), "GET", "/", basic("alice"))
        assert len(web.host.jobs) == 1  # another connection

    def test_the_next_request_is_not_the_last_ones_user(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        web.set_password("bob", "bobs")
        client = web.client()
        assert web.ask(client, header=basic("alice")) == 0
        assert web.ask(client) == 40101
        assert client.connection.principal == ANONYMOUS
        assert web.ask(client, header=basic("bob", "bobs")) == 0
        assert client.connection.principal == "User:bob"
        assert web.ask(client, header=basic("bob", PASSWORD)) == 40101

    def test_a_changed_password_counts_for_open_connections(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        client = web.client()
        assert web.ask(client, header=basic("alice")) == 0
        web.set_password(password="another")
        assert web.ask(client, header=basic("alice")) == 40101
        assert web.ask(client, header=basic("alice", "another")) == 0
        web.remove()
        assert web.ask(client, header=basic("alice", "another")) == 40101

    def test_a_password_that_is_changed_during_the_check_does_not_count(self) -> None:
        web = Web(REQUIRED)
        web.set_password()
        web.host.runs_jobs = False
        client = web.client()
        web.begin(client, "GET", "/", basic("alice"))
        login = web.host.jobs.popleft()
        web.host.runs_jobs = True
        web.set_password(password="another")
        web.host.jobs.append(login)
        web.host.run_jobs()
        web.host.advance(DELAY_S)
        (said,) = web.told
        assert said is not None
        assert said.status == 401

    def test_the_weaker_credential_serves_if_there_is_no_other(self) -> None:
        web = Web(REQUIRED)
        salted = salt_password(SHA_256, PASSWORD, b"salt", 4096)
        given = ScramCredentialUpsertion(
            name="alice", mechanism=SHA_256.id, iterations=4096, salt=b"salt", salted_password=salted
        )
        web.host.ask(AlterUserScramCredentialsRequest(upsertions=[given]), 0)
        assert web.ask(web.client(), header=basic("alice")) == 0

    def test_a_certificate_is_a_login(self) -> None:
        web = Web(REQUIRED)
        client = web.client("HTTPS", "User:CN=alice")
        assert web.ask(client) == 0
        assert client.connection.principal == "User:CN=alice"
        web.set_password()
        assert web.ask(client, header=basic("alice")) == 0
        assert client.connection.principal == ALICE  # who it says it is counts
        assert web.ask(client) == 0
        assert client.connection.principal == "User:CN=alice"

    def test_metrics_may_be_for_everybody(self) -> None:
        web = Web(REQUIRED)
        assert web.ask(web.client(), target="/metrics") == 40101
        web = Web(REQUIRED | {"headrace_http_metrics_anonymous": "true"})
        assert web.ask(web.client(), target="/metrics") == 0
        assert web.ask(web.client(), target="/metrics?x") == 0
        for other in ("/subjects", "/metrics/", "/Metrics", "//metrics", "/metrics/../subjects"):
            assert web.ask(web.client(), target=other) == 40101


KEY, NEW_KEY, STRANGER = Key("k1", "EdDSA"), Key("k2", "EdDSA"), Key("k1", "EdDSA")
NOW_S = 1_700_000_000  # where the host's clock begins
URL = "https://issuer.example/keys"


class TestTokens:
    @staticmethod
    def web(**more: str) -> Web:
        return Web(REQUIRED | {"sasl_oauthbearer_jwks_endpoint_url": URL} | more)

    @staticmethod
    def bearer(key: Key = KEY, **claims: object) -> str:
        return f"Bearer {key.sign(claims_at(NOW_S, **claims))}"

    def test_a_token_of_the_identity_provider(self) -> None:
        web = self.web()
        client = web.client()
        web.begin(client, "GET", "/subjects", self.bearer())
        assert web.told == []  # the keys are being fetched
        web.host.hand_in(key_set(KEY.public()))
        assert web.told == [None]
        assert client.connection.principal == ALICE
        web.told.clear()
        assert web.ask(client, header=self.bearer(sub="bob")) == 0
        assert client.connection.principal == "User:bob"
        assert web.ask(client) == 40101

    def test_a_client_that_has_gone_waits_for_no_keys(self) -> None:
        web = self.web()
        clients = [web.client() for _ in range(WAITING_MAX)]
        for client in clients:
            web.begin(client, "GET", "/subjects", self.bearer())
        for client in clients:
            web.host.node.http_clients.forget(client)
        web.begin(web.client(), "GET", "/subjects", self.bearer())
        web.host.hand_in(key_set(KEY.public()))
        assert web.told == [None], "of the one that is there"

    def test_a_good_token_is_checked_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A signature costs up to 600 µs of the loop."""
        web = self.web()
        web.begin(web.client(), "GET", "/", self.bearer())
        web.host.hand_in(key_set(KEY.public()))
        web.told.clear()
        checked = 0
        check = BearerCheck.check

        def counted(*args: Any) -> Any:
            nonlocal checked
            checked += 1
            return check(*args)

        monkeypatch.setattr(BearerCheck, "check", counted)
        assert web.ask(web.client(), header=self.bearer()) == 0
        assert checked == 1

    def test_others(self) -> None:
        web = self.web()
        web.begin(web.client(), "GET", "/", self.bearer())
        web.host.hand_in(key_set(KEY.public()))
        web.told.clear()
        unsigned = token_of({"alg": "none"}, claims_at(NOW_S))
        for header in (
            self.bearer(STRANGER),
            self.bearer(exp=NOW_S - 100),
            self.bearer() + "x",
            f"Bearer {unsigned}",
            "Bearer x.y.z",
        ):
            client = web.client()
            assert web.ask(client, header=header) == 40101
            assert client.connection.principal == ANONYMOUS
        reports = web.reports()
        assert {one["mechanism"] for one in reports} == {"Bearer"}
        assert KEY.sign(claims_at(NOW_S)) not in repr(reports)

    def test_a_token_expires_on_an_open_connection(self) -> None:
        web = self.web()
        client = web.client()
        header = self.bearer(exp=NOW_S + 60)
        web.begin(client, "GET", "/", header)
        web.host.hand_in(key_set(KEY.public()))
        assert web.told.pop() is None
        web.host.advance(200.0)
        while web.host.fetches:
            web.host.hand_in(key_set(KEY.public()))
        assert web.ask(client, header=header) == 40101

    def test_an_unknown_key_has_them_fetched(self) -> None:
        web = self.web()
        web.begin(web.client(), "GET", "/", self.bearer())
        web.host.hand_in(key_set(KEY.public()))
        web.told.clear()
        web.host.advance(10.0)
        web.begin(web.client(), "GET", "/", self.bearer(NEW_KEY))
        assert web.told == []
        web.host.hand_in(key_set(KEY.public(), NEW_KEY.public()))
        assert web.told == [None]

    def test_both_ways_are_offered(self) -> None:
        for web, ways in ((self.web(), 2), (Web(REQUIRED), 1)):
            web.begin(web.client(), "GET", "/")
            (said,) = web.told
            assert said is not None
            assert len([name for name, _ in said.headers if name == "WWW-Authenticate"]) == ways

    def test_without_keys_no_token_is_accepted(self) -> None:
        web = Web(REQUIRED)
        assert web.ask(web.client(), header=self.bearer()) == 40101
        assert not web.host.fetches

    def test_tokens_without_a_signature_on_this_machine_alone(self) -> None:
        flag = {"headrace_oauthbearer_unsigned_tokens": "true"}
        token = "Bearer " + token_of({"alg": "none"}, claims_at(NOW_S))
        web = Web(REQUIRED | flag)
        assert web.ask(web.client(), header=token) == 0
        open_one = {"headrace_metrics_host": "0.0.0.0", "headrace_http_login_required": "false"}
        web = Web(flag | open_one | {"authorizer_class_name": "standard", "super_users": ALICE})
        client = web.client()
        assert web.ask(client, "PUT", "/config", token) == 40301
        assert client.connection.principal == ANONYMOUS

    def test_a_wrong_address_of_the_keys_is_told_at_the_start(self) -> None:
        with pytest.raises(InvalidConfig, match="jwks"):
            self.web(sasl_oauthbearer_jwks_endpoint_url="http://elsewhere.example/keys")


class TestSettings:
    AUTHORIZER = {"authorizer.class.name": "standard", "super.users": "User:admin"}

    @staticmethod
    def settings(**more: str) -> Settings:
        texts = {"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "data"}
        return Settings.parse(texts | {key.replace("_", "."): value for key, value in more.items()})

    def test_an_authorizer_asks_for_logins(self) -> None:
        assert not self.settings().http.login_required
        assert self.settings(**self.AUTHORIZER).http.login_required
        assert not self.settings(**self.AUTHORIZER, headrace_http_login_required="false").http.login_required

    def test_passwords_do_not_cross_a_network_in_the_clear(self) -> None:
        texts = {"headrace_metrics_port": "0", "headrace_metrics_host": "0.0.0.0"}
        assert self.settings(**texts).http.listeners[0].is_open
        with pytest.raises(InvalidConfig, match=r"headrace.metrics.port.*has no TLS.*login.required=false"):
            self.settings(**texts, **self.AUTHORIZER)
        self.settings(**texts, **self.AUTHORIZER, headrace_http_login_required="false")
        with pytest.raises(InvalidConfig, match=r"headrace.http.listeners: http://10.0.0.1:80 has no TLS"):
            self.settings(headrace_http_listeners="http://10.0.0.1:80", headrace_http_login_required="true")
        self.settings(headrace_http_listeners="http://[::1]:80", headrace_http_login_required="true")

    def test_a_password_is_not_taken_where_it_comes_in_the_clear(self) -> None:
        web = Web(
            {
                "headrace_metrics_host": "0.0.0.0",
                "headrace_http_login_required": "false",
                "authorizer_class_name": "standard",
                "super_users": "User:alice",
            }
        )
        assert web.ask(web.client(), header=basic("alice")) == 40301
        assert web.ask(web.client()) == 0

    def test_addresses(self) -> None:
        http = self.settings(
            headrace_http_listeners="https://:9645,http://127.0.0.1:0", ssl_keystore_location="a.pem"
        ).http
        assert [(one.name, one.host, one.port, one.is_open) for one in http.listeners] == [
            ("HTTPS", "", 9645, False),
            ("HTTP", "127.0.0.1", 0, False),
        ]
        assert self.settings().http.listeners == ()
        assert self.settings(headrace_http_hosts="A.example,b:80").http.hosts == {"a.example", "b:80"}

    @pytest.mark.parametrize(
        ("texts", "said"),
        [
            ({"headrace_http_listeners": "https://:1"}, "HTTPS needs a certificate"),
            ({"headrace_http_listeners": "ftp://a:1"}, "expected http://host:port"),
            ({"headrace_http_listeners": "http://a"}, "expected http://host:port"),
            ({"headrace_http_listeners": "http://a:70000"}, "expected http://host:port"),
            ({"headrace_http_listeners": "http://a:1,http://b:1"}, "http is there twice"),
            ({"headrace_http_listeners": "http://a:1", "headrace_metrics_port": "0"}, "remove"),
            ({"headrace_http_hosts": "http://a"}, "expected names"),
        ],
    )
    def test_wrong_ones(self, texts: dict[str, str], said: str) -> None:
        with pytest.raises(InvalidConfig, match=said):
            self.settings(**texts)


ROUTES = [(method, path) for path, methods in RIGHTS.items() for method in methods]


class TestRights:
    """Every route × {no login, no right, another right, the right}."""

    @staticmethod
    def web() -> Web:
        return Web(REQUIRED, has_rules=True)

    @staticmethod
    def target(path: str) -> str:
        return path.replace("/*", "/orders-value", 1).replace("/*", "/1")

    @pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/metrics"), ("HEAD", "/metrics")])
    def test_no_login(self, method: str, path: str) -> None:
        web = self.web()
        assert web.ask(web.client(), method, self.target(path)) == 40101

    @pytest.mark.parametrize(("method", "path"), ROUTES)
    def test_the_right_to_each(self, method: str, path: str) -> None:
        web = self.web()
        assert web.rules is not None
        client = web.client()
        right = RIGHTS[path][method]

        def code() -> int:
            return web.ask(client, method, self.target(path), basic("alice"))

        if right.to in (To.NOTHING, To.SHOWN):
            assert code() == 0
            return
        assert code() == 40301
        if right.to is To.CLUSTER:
            resource, name = Resource.CLUSTER, CLUSTER_NAME
            other: tuple[Resource, str] = (Resource.TOPIC, "orders")
        else:
            resource, name = Resource.TOPIC, "orders"
            other = (Resource.CLUSTER, CLUSTER_NAME)
        # all rights to another thing, and the other rights to this one, are not enough
        web.rules.allow(Operation.ALL, *other, ALICE)
        web.rules.allow(Operation.ALL, Resource.TOPIC, "orders-value", ALICE)
        web.rules.allow(Operation.ALL, Resource.GROUP, "orders", ALICE)
        web.rules.allow(right.operation, resource, name, "User:bob")
        implying = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
        for operation in (Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE):
            if operation is right.operation or (
                right.operation is Operation.DESCRIBE and operation in implying
            ):
                continue
            web.rules.allow(operation, resource, name, ALICE)
        assert code() == 40301
        given = web.rules.allow(right.operation, resource, name, ALICE)
        assert code() == 0
        web.rules.remove(given)
        assert code() == 40301  # at once, on the open connection

    @pytest.mark.parametrize(
        ("method", "target", "body", "is_import"),
        [
            ("PUT", "/mode/orders-value", b'{"mode": "IMPORT"}', True),
            ("PUT", "/mode/orders-value?force=true", b'{"mode": "READONLY", "mode": "IMPORT"}', True),
            ("PUT", "//mode/orders%2Dvalue/", '{"mode": "IMPORT"}'.encode("utf-16"), True),
            ("PUT", "/mode/orders-value", b'{"mode": "READWRITE"}', False),
            ("PUT", "/mode/orders-value", b'{"mode": ["IMPORT"]}', False),
            ("PUT", "/mode/orders-value", b"[" * 100_000, False),
            ("PUT", "/mode/orders-value", b"", False),
            ("POST", "/subjects/orders-value/versions", b'{"mode": "IMPORT"}', False),
        ],
    )
    def test_ids_of_all_subjects_are_chosen_by_who_may_alter_the_cluster(
        self, method: str, target: str, body: bytes, is_import: bool
    ) -> None:
        """In import mode: whoever takes the last id leaves none to the subjects of others."""
        web = self.web()
        assert web.rules is not None
        client = web.client()
        web.rules.allow(Operation.ALL, Resource.TOPIC, "orders", ALICE)
        assert web.ask(client, method, target, basic("alice")) == 0
        clients, request = web.host.node.http_clients, HttpRequest(method, target, body)
        refused = clients.body_refusal(web.host.clock.now(), client, request)
        assert (refused is not None) == is_import
        if refused is not None:
            assert json.loads(refused.body)["error_code"] == 40301
        web.rules.allow(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME, ALICE)
        assert clients.body_refusal(web.host.clock.now(), client, request) is None

    def test_a_right_that_is_taken_away_before_the_body_comes(self) -> None:
        web = Web(REQUIRED, has_rules=True)
        assert web.rules is not None
        client = web.client()
        rule = web.rules.allow(Operation.WRITE, Resource.TOPIC, "orders", ALICE)
        target = "/subjects/orders-value/versions"
        assert web.ask(client, "POST", target, basic("alice")) == 0
        clients, request = web.host.node.http_clients, HttpRequest("POST", target, b"{}")
        web.rules.allow(Operation.READ, Resource.TOPIC, "other", ALICE)
        assert clients.body_refusal(web.host.clock.now(), client, request) is None, "another rule"
        web.rules.remove(rule)
        refused = clients.body_refusal(web.host.clock.now(), client, request)
        assert refused is not None
        assert json.loads(refused.body)["error_code"] == 40301

    def test_what_each_route_asks_for(self) -> None:
        """Written out by hand: a wrong row in the table must not pass."""
        asked = {
            f"{method} {path}": f"{right.operation.name} {right.to.name}"
            for path, methods in RIGHTS.items()
            for method, right in methods.items()
            if right.to in (To.SUBJECT, To.CLUSTER)
        }
        assert asked == {
            "POST /subjects/*": "DESCRIBE SUBJECT",
            "DELETE /subjects/*": "ALTER SUBJECT",
            "GET /subjects/*/versions": "DESCRIBE SUBJECT",
            "POST /subjects/*/versions": "WRITE SUBJECT",
            "GET /subjects/*/versions/*": "DESCRIBE SUBJECT",
            "DELETE /subjects/*/versions/*": "ALTER SUBJECT",
            "GET /subjects/*/versions/*/schema": "DESCRIBE SUBJECT",
            "GET /subjects/*/versions/*/referencedby": "DESCRIBE SUBJECT",
            "POST /compatibility/subjects/*/versions": "DESCRIBE SUBJECT",
            "POST /compatibility/subjects/*/versions/*": "DESCRIBE SUBJECT",
            "GET /config": "DESCRIBE CLUSTER",
            "PUT /config": "ALTER CLUSTER",
            "DELETE /config": "ALTER CLUSTER",
            "GET /config/*": "DESCRIBE SUBJECT",
            "PUT /config/*": "ALTER SUBJECT",
            "DELETE /config/*": "ALTER SUBJECT",
            "GET /mode": "DESCRIBE CLUSTER",
            "PUT /mode": "ALTER CLUSTER",
            "DELETE /mode": "ALTER CLUSTER",
            "GET /mode/*": "DESCRIBE SUBJECT",
            "PUT /mode/*": "ALTER SUBJECT",
            "DELETE /mode/*": "ALTER SUBJECT",
        }
        changes = {key for key in asked if not key.startswith("GET") and "DESCRIBE" in asked[key]}
        assert changes == {  # none of them changes anything
            "POST /subjects/*",
            "POST /compatibility/subjects/*/versions",
            "POST /compatibility/subjects/*/versions/*",
        }

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    def test_metrics(self, method: str) -> None:
        web = self.web()
        assert web.rules is not None
        client = web.client()
        assert web.ask(client, method, "/metrics", basic("alice")) == 40301
        web.rules.allow(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, ALICE)
        assert web.ask(client, method, "/metrics", basic("alice")) == 0

    def test_a_rule_for_an_address(self) -> None:
        web = self.web()
        assert web.rules is not None
        web.rules.allow(Operation.DESCRIBE, Resource.TOPIC, "orders", ALICE, host="10.9.9.9")
        assert web.ask(web.client(), target="/subjects/orders-value/versions", header=basic("alice")) == 40301
        web.rules.allow(Operation.DESCRIBE, Resource.TOPIC, "orders", ALICE, host="10.1.1.1")
        assert web.ask(web.client(), target="/subjects/orders-value/versions", header=basic("alice")) == 0

    def test_rules_for_anonymous_clients_where_no_login_is_required(self) -> None:
        web = Web(has_rules=True)
        assert web.rules is not None
        assert web.ask(web.client(), "DELETE", "/subjects/orders-key") == 40301
        web.rules.allow(Operation.ALTER, Resource.TOPIC, "orders")
        assert web.ask(web.client(), "DELETE", "/subjects/orders-key") == 0

    def test_what_is_seen(self) -> None:
        web = self.web()
        assert web.rules is not None
        client = web.client()
        web.ask(client, header=basic("alice"))
        sees = web.host.node.http_clients.sees(client)
        assert sees is not None
        assert not sees("orders-value")
        web.rules.allow(Operation.READ, Resource.TOPIC, "orders", ALICE)
        assert sees("orders-value")
        assert not sees("payments-value")

    @pytest.mark.parametrize(
        "target",
        [
            "/subjects/orders-value/versions",
            "/subjects/orders-value/versions/",
            "//subjects/orders-value/versions",
            "/subjects/%6frders-value/versions",
            "/%73ubjects/orders-value/versions?subject=free-value",
            "/subjects/orders-value/versions#/subjects/free-value",
            "/subjects/orders-value/versions?/../../free-value",
        ],
    )
    def test_other_spellings_of_a_path_are_asked_for_the_same(self, target: str) -> None:
        web = self.web()
        assert web.rules is not None
        web.rules.allow(Operation.WRITE, Resource.TOPIC, "free", ALICE)
        route = find_route("POST", target)
        answered = web.ask(web.client(), "POST", target, basic("alice"))
        assert answered == (0 if route is None else 40301)

    @pytest.mark.parametrize(
        ("subject", "topic"),
        [
            *(("orders-value", "orders"), ("orders-key", "orders"), ("orders", "orders")),
            *(("orders-value-key", "orders-value"), ("-value", ""), ("com.acme.Order", "com.acme.Order")),
            *(("orders-values", "orders-values"), ("a/b-value", "a/b")),
        ],
    )
    def test_the_topic_of_a_subject(self, subject: str, topic: str) -> None:
        assert topic_of(subject) == topic
