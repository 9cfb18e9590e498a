"""`headrace up --secure`: certificates, users and rules made on the spot, and kept."""

from __future__ import annotations

import base64
import os
import re
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient

from cli.running import Up
from cli.shell import Shell
from headrace.cli.certificates import Certificates
from headrace.cli.secure_cluster import SecureCluster


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    made = Shell("")
    del made.environment["HEADRACE_BOOTSTRAP"]  # the file names the brokers
    yield made
    made.end()


@pytest.fixture(scope="module")
def secure(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(shell, tmp_path_factory.mktemp("secure") / "data", "--secure")
    assert up.line.startswith("ready "), up.process.communicate()
    yield up
    up.end()


def config(up: Up, name: str = "client.properties") -> str:
    return str(up.data / "secure" / name)


def as_dict(path: str) -> dict[str, Any]:
    lines = Path(path).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_the_client_works_with_topics_and_the_admin_with_all(shell: Shell, secure: Up) -> None:
    mine = ("--client-config", config(secure))
    shell("topic", "create", "hello", *mine)
    shell("produce", "hello", *mine, stdin=b"world\n")
    assert shell("consume", "hello", *mine).out == b"world\n"
    refused = shell.attempt("acl", "list", *mine)
    assert (refused.code, "CLUSTER_AUTHORIZATION_FAILED" in refused.err) == (1, True)
    refused = shell.attempt("user", "list", *mine)
    assert refused.code == 1
    admin = ("--client-config", config(secure, "admin.properties"))
    assert shell("user", "list", *admin).lines == ["admin", "client"]
    assert len(shell("acl", "list", "--json", *admin).json) == 4


def test_nobody_gets_in_otherwise(shell: Shell, secure: Up) -> None:
    address = secure.line.split()[1]
    plain = shell.attempt("topic", "list", "-b", address, "--timeout", "5")
    assert plain.code == 1
    wrong = shell.attempt(
        "topic",
        "list",
        "--client-config",
        config(secure),
        "-X",
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="client" '
        'password="guess";',
    )
    assert (wrong.code, "refused user client" in wrong.err) == (1, True), wrong.err
    untrusted = shell.attempt("topic", "list", "-b", address, "-X", "security.protocol=SSL", "--timeout", "5")
    assert (untrusted.code, "certificate" in untrusted.err) == (1, True)


def test_librdkafka(secure: Up) -> None:
    settings = as_dict(config(secure, "client.librdkafka.properties"))
    producer = ConfluentProducer(settings)
    producer.produce("from-librdkafka", b"value")
    assert producer.flush(60) == 0
    consumer = ConfluentConsumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["from-librdkafka"])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()
    with pytest.raises(KafkaException):
        AdminClient(settings | {"sasl.password": "wrong"}).list_topics(timeout=5)


def test_secrets_are_for_their_owner_alone(secure: Up) -> None:
    directory = secure.data / "secure"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = list(directory.iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not [path for path in files if path.name.startswith(".")], "no leftovers"
    passwords = [(directory / f"{user}.password").read_text().strip() for user in ("admin", "client")]
    assert len(set(passwords)) == 2
    everything = "".join(path.read_text() for path in secure.data.glob("node-1/*") if path.is_file())
    assert not [password for password in passwords if password in everything]


def test_metrics_need_a_login(secure: Up) -> None:
    found = re.search(r" metrics address=(\S+)", (secure.node / "node.log").read_text())
    assert found is not None

    def status(user: str, password: str) -> int:
        request = urllib.request.Request(found[1])
        if user:
            secret = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {secret}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    password = (secure.data / "secure" / "admin.password").read_text().strip()
    assert status("", "") == 401
    assert status("admin", "wrong") == 401
    assert status("admin", password) == 200


def test_the_certificate(secure: Up) -> None:
    host, _, port = secure.line.split()[1].rpartition(":")
    text = ssl.get_server_certificate((host, int(port)), ca_certs=config(secure, "ca.pem"))
    assert text in (secure.data / "secure" / "node-1.pem").read_text()


def test_a_second_start_uses_the_same_ones(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = Up(shell, data, "--secure")
    try:
        shell("topic", "create", "kept", "--client-config", config(first))
        shell("acl", "remove", "--all", "--yes", "--client-config", config(first, "admin.properties"))
    finally:
        first.end()
    kept = ("ca.pem", "ca.key", "node-1.pem", "admin.password", "client.password")
    before = [(data / "secure" / name).read_bytes() for name in kept]

    refused = shell.attempt("up", "--data", str(data), "--port", "0")
    assert (refused.code, "made with --secure" in refused.err) == (1, True)

    again = Up(shell, data, "--secure")
    try:
        assert again.line.startswith("ready ")
        assert [(data / "secure" / name).read_bytes() for name in kept] == before
        admin = ("--client-config", config(again, "admin.properties"))
        assert shell("topic", "list", *admin).lines == ["kept"]
        assert shell("acl", "list", "--json", *admin).json == [], "rules that were removed do not come back"
    finally:
        again.end()

    (data / "secure" / "admin.password").unlink()
    lost = shell.attempt("up", "--data", str(data), "--port", "0", "--secure")
    assert (lost.code, "admin.password is missing" in lost.err) == (1, True)


def test_a_cluster_without_users_cannot_become_secure(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "data"
    Up(shell, data).end()
    refused = shell.attempt("up", "--data", str(data), "--port", "0", "--secure")
    assert (refused.code, "started without --secure" in refused.err) == (1, True)
    assert not (data / "secure").exists()


def test_a_lost_key_of_the_authority(shell: Shell, tmp_path: Path) -> None:
    """Nobody makes a new authority behind the back of clients that trust the old one."""
    data = tmp_path / "data"
    SecureCluster(data, 1).prepare()
    files = data / "secure"
    before = (files / "ca.pem").read_text()
    (files / "ca.key").rename(tmp_path / "other.key")
    certificates = Certificates(files)
    certificates.prepare(1)  # nothing has to be signed
    start = ("up", "--data", str(data), "--port", "0", "--secure")
    for broken in ("is missing", "is not the key of", "is not the key of"):
        (files / "node-1.pem").unlink(missing_ok=True)
        refused = shell.attempt(*start)
        assert refused.code == 1
        assert len(refused.err.splitlines()) == 1
        assert f"ca.key {broken}" in refused.err
        assert "--new-authority" in refused.err
        (files / "ca.key").write_text("" if broken == "is missing" else before)
    assert (files / "ca.pem").read_text() == before
    up = Up(shell, data, "--secure", "--new-authority")
    try:
        assert up.line.startswith("ready "), up.process.communicate()
        assert (files / "ca.pem").read_text() != before
        shell("topic", "create", "hello", "--client-config", config(up))
    finally:
        up.end()

    (files / "ca.pem").unlink()
    refused = shell.attempt(*start)
    assert (refused.code, "ca.pem is missing" in refused.err) == (1, True)
    open_one = shell.attempt("up", "--data", str(data), "--port", "0")
    assert (open_one.code, "made with --secure" in open_one.err) == (1, True)


def test_without_openssl(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Shell("127.0.0.1:1")
    other.environment = os.environ | {"PATH": str(tmp_path)}
    refused = other.attempt("up", "--data", str(tmp_path / "data"), "--port", "0", "--secure")
    assert (refused.code, "openssl command, which was not found" in refused.err) == (1, True)


@pytest.mark.parametrize("key", ["listeners=PLAINTEXT://:1", "super.users=User:me", "ssl.keystore.type=PEM"])
def test_settings_that_secure_makes_itself(shell: Shell, tmp_path: Path, key: str) -> None:
    refused = shell.attempt("up", "--data", str(tmp_path / "data"), "--secure", "--set", key)
    assert (refused.code, "--secure sets it" in refused.err) == (2, True)


def test_three_nodes_know_each_other_by_certificates(shell: Shell, tmp_path: Path) -> None:
    up = Up(shell, tmp_path / "data", "--secure", "--brokers", "3")
    try:
        assert up.line.startswith("ready "), up.process.communicate()
        assert len(up.line.split()[1].split(",")) == 3, "the listeners of clients alone"
        mine = ("--client-config", config(up))
        shell("topic", "create", "hello", "-p", "3", *mine)
        shell("produce", "hello", *mine, stdin=b"world\n")
        assert shell("consume", "hello", *mine).out == b"world\n"
        settings = as_dict(str(up.node / "server.properties"))
        internal = [one for one in settings["listeners"].split(",") if not one.startswith("SASL_SSL:")]
        assert len(internal) == 2
        for listener in internal:  # somebody who trusts the cluster, and has no certificate of its own
            address = listener.partition("://")[2]
            tls = ("-X", "security.protocol=SSL", "-X", f"ssl.ca.location={config(up, 'ca.pem')}")
            refused = shell.attempt("topic", "list", "-b", address, *tls, "--timeout", "5")
            assert refused.code == 1, listener
            refused = shell.attempt("topic", "list", "-b", address, "--timeout", "5")
            assert refused.code == 1, listener
    finally:
        up.end()
