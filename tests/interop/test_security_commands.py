"""`headrace acl`, `user`, `quota` and `token` do the same with Kafka as with Headrace, and Kafka's own tools
see what they did.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cli.shell import Shell
from harness.broker import Broker
from harness.headrace import Headrace
from harness.kafka import Kafka, free_ports
from headrace import Admin
from interop.java_tools import Run
from interop.side_by_side import assert_same

Brokers = tuple[Broker, Broker]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a secret of all brokers",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "inter.broker.listener.name": "PLAINTEXT",
}


class WithLogins(Kafka):
    """Kafka with an authorizer and a listener on which clients log in."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SETTINGS)
        self.port, self.controller_port, self.sasl_port = free_ports(3)
        prefix = "listener.name.sasl_plaintext"
        self.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port},"
            f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }


class OursWithLogins(Headrace):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SETTINGS)
        self.sasl_port, port = free_ports(2)
        listeners = f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port},PLAINTEXT://127.0.0.1:{port}"
        self.settings["listeners"] = listeners


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """(Kafka, Headrace) with an authorizer; whoever has not logged in is a super user."""
    both = (WithLogins(tmp_path_factory.mktemp("kafka")), OursWithLogins(tmp_path_factory.mktemp("headrace")))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda broker: broker.start(), both))
    yield both
    for broker in both:
        broker.kill()


def commands(broker: Broker, told: list[Any], options: tuple[str, ...] = ()) -> Any:
    """Runs a command, and keeps exit code, results and the name of the error."""
    shell = Shell(broker.bootstrap)

    def tell(*words: str, stdin: bytes = b"") -> Any:
        done = shell.attempt(*words, "--json", *options, stdin=stdin)
        error = json.loads(done.err.splitlines()[-1])["error"] if done.code else None
        told.append((words, done.code, error, done.json if done.out else None))
        return done.json if done.out else None

    return tell


def test_rules(guarded: Brokers, run: Run) -> None:
    def story(broker: Broker) -> list[object]:
        told: list[Any] = []
        tell = commands(broker, told)
        tell("acl", "list")
        tell("acl", "add", "--allow", "alice", "--operation", "write", "--topic", "orders")
        tell("acl", "add", "--allow", "bob", "--consumer", "--topic", "ord", "--group", "readers", "--prefix")
        tell("acl", "add", "--allow", "carol", "--producer", "--idempotent", "--topic", "*")
        tell("acl", "add", "--deny", "alice", "-o", "read", "-t", "orders", "--host", "10.0.0.7")
        tell("acl", "add", "--allow", "dave", "-o", "create-tokens", "--user", "User:erin")
        tell("acl", "list")
        tell("acl", "list", "--topic", "orders")
        tell("acl", "list", "--principal", "bob")
        for question in (
            ("alice", "write", "-t", "orders"),
            ("alice", "describe", "-t", "orders"),
            ("alice", "read", "-t", "orders", "--host", "10.0.0.7"),
            ("bob", "read", "-t", "ordinary"),
            ("carol", "idempotent-write", "--cluster"),
        ):
            tell("acl", "explain", *question)
        seen = run(broker, "kafka-acls", "--list")
        told.append((seen.code, sorted(seen.lines)))
        tell("acl", "remove", "--principal", "alice", "--topic", "orders", "--yes")
        tell("acl", "remove", "--topic", "ord", "--prefix", "--yes")
        tell("acl", "remove", "--all", "--yes")
        tell("acl", "list")
        return told

    assert len(assert_same(guarded, story)) > 15


def test_users(guarded: Brokers, run: Run) -> None:
    def story(broker: Broker) -> list[object]:
        told: list[Any] = []
        tell = commands(broker, told)
        tell("user", "add", "alice", "--password-stdin", stdin=b"secret\n")
        tell("user", "add", "alice", "--password-stdin", stdin=b"secret\n")
        tell(
            "user",
            "add",
            "bob",
            "-m",
            "SCRAM-SHA-256",
            "--iterations",
            "4096",
            "--password-stdin",
            stdin=b"x\n",
        )
        tell("user", "list")
        lines = run(broker, "kafka-configs", "--describe", "--entity-type", "users").lines
        # mechanisms come in the order of a hash map
        told.append(sorted(sorted(line.replace(" are ", ", ").split(", ")) for line in lines))
        tell("user", "password", "alice", "--password-stdin", "--iterations", "16384", stdin=b"new\n")
        assert isinstance(broker, WithLogins | OursWithLogins)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "new"}
            settings = {"security.protocol": "SASL_PLAINTEXT", **login}
            with Admin({"bootstrap.servers": f"127.0.0.1:{broker.sasl_port}", **settings}) as admin:
                told.append(len(admin.list_brokers()))
        tell("user", "remove", "nobody", "--yes")
        tell("user", "remove", "alice", "bob", "--yes")
        tell("user", "list")
        return told

    assert_same(guarded, story)


def test_quotas(guarded: Brokers, run: Run) -> None:
    def story(broker: Broker) -> list[object]:
        told: list[Any] = []
        tell = commands(broker, told)
        tell("quota", "set", "--user", "alice", "producer_byte_rate=1MiB", "request_percentage=50")
        tell("quota", "set", "--user-default", "--client-id", "batch", "consumer_byte_rate=5000")
        tell("quota", "set", "--client-default", "controller_mutation_rate=2.5")
        tell("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
        tell("quota", "set", "--ip-default", "connection_creation_rate=100")
        tell("quota", "set", "--ip", "no address", "connection_creation_rate=5")
        tell("quota", "set", "--user", "bob", "consumer_byte_rate=1", "--dry-run")
        tell("quota", "list")
        tell("quota", "explain", "--user", "alice", "--client-id", "batch")
        tell("quota", "explain", "--ip", "10.0.0.7")
        (seen,) = run(broker, "kafka-configs", "--describe", "--entity-type", "users").lines
        told.append(sorted(seen.replace(",", "").split()))  # the order is that of a hash map
        tell("quota", "remove", "--user", "alice", "request_percentage", "--yes")
        tell("quota", "remove", "--user", "alice", "--yes")
        tell("quota", "remove", "--user-default", "--client-id", "batch", "--yes")
        tell("quota", "remove", "--client-default", "--yes")
        tell("quota", "remove", "--ip", "10.0.0.7", "--yes")
        tell("quota", "remove", "--ip-default", "--yes")
        tell("quota", "remove", "--user", "nobody", "--yes")
        tell("quota", "list")
        return told

    assert_same(guarded, story)


def test_tokens(guarded: Brokers, tmp_path: Path) -> None:
    def story(broker: Broker) -> list[object]:
        assert isinstance(broker, WithLogins | OursWithLogins)
        with Admin(broker.bootstrap) as admin:
            for user in ("alice", "bob"):
                admin.set_password(user, "secret")
        told: list[Any] = []

        def as_user(user: str) -> Any:
            path = tmp_path / f"{broker.name}-{user}.properties"
            path.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
                f"sasl.username={user}\nsasl.password=secret\n"
            )
            address = f"127.0.0.1:{broker.sasl_port}"
            kept: list[Any] = []
            ask = commands(broker, kept, ("--client-config", str(path), "-b", address))

            def tell(*words: str) -> Any:
                answer = ask(*words)
                told.append((words[:2], *kept[-1][1:3]))
                return answer

            return tell

        alice, bob = as_user("alice"), as_user("bob")
        token = alice("token", "create", "--renewer", "bob", "--lifetime", "1h")
        told.append((token["owner"], token["requester"], token["renewers"]))
        told.append(token["expires_ms_max"] - token["issued_ms"])
        (listed,) = alice("token", "list", "--secrets")
        told.append((listed["hmac"] == token["hmac"], listed["owner"], listed["renewers"]))
        told.append([one["owner"] for one in bob("token", "list")])
        renewed = bob("token", "renew", token["token_id"], "--for", "30m")
        told.append(renewed["expires_ms"] <= token["expires_ms_max"])
        login = {"sasl.mechanism": "SCRAM-SHA-512", "security.protocol": "SASL_PLAINTEXT"}
        jaas = f'{SCRAM} required username="{token["token_id"]}" password="{token["hmac"]}" tokenauth="true";'
        servers = {"bootstrap.servers": f"127.0.0.1:{broker.sasl_port}", "sasl.jaas.config": jaas}
        with Admin(servers | login) as admin:
            told.append(len(admin.list_brokers()))
        alice("token", "create", "--owner", "bob")
        alice("token", "expire", token["token_id"], "--yes")
        alice("token", "renew", token["token_id"])
        anonymous = commands(broker, told)
        anonymous("token", "create")
        return told

    assert_same(guarded, story)
