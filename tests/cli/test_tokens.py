"""`headrace token` against a broker with logins, if it serves delegation tokens."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.shell import Inside
from harness.headrace import Headrace
from harness.kafka import Kafka, free_ports
from headrace import Admin
from headrace.cli.main import run

KEY = {"delegation.token.secret.key": "a secret of all brokers"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login(user: str, password: str) -> str:
    return f'{SCRAM} required username="{user}" password="{password}";'


@pytest.fixture(scope="module")
def with_logins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker with a SASL listener, the first one, and two users."""
    directory = tmp_path_factory.mktemp("tokens")
    own, *others = free_ports(3)
    broker: Any
    if request.config.getoption("--broker") == "kafka":
        broker = Kafka(directory, KEY)
        broker.port, broker.controller_port = others
        listeners = f"SASL_PLAINTEXT://127.0.0.1:{own},PLAINTEXT://127.0.0.1:{broker.port}"
        broker.settings |= {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }
    else:
        broker = Headrace(directory, KEY)
        broker.settings["listeners"] = f"SASL_PLAINTEXT://127.0.0.1:{own},PLAINTEXT://127.0.0.1:{others[0]}"
    broker.settings |= {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "inter.broker.listener.name": "PLAINTEXT"}
    with broker:
        with Admin(broker.bootstrap) as admin:
            for user in ("alice", "bob"):
                admin.set_password(user, f"{user}'s")
        yield f"127.0.0.1:{own}"


class As:
    """`headrace …` as a user."""

    def __init__(self, inside: Inside, directory: Path, address: str) -> None:
        self._inside = inside
        self._directory = directory
        self._address = address

    def _words(self, user: str) -> tuple[str, ...]:
        path = self._directory / f"{user}.properties"
        path.write_text(
            f"bootstrap.servers={self._address}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login(user, f'{user}' + chr(39) + 's')}\n"
        )
        return "--client-config", str(path)

    def attempt(self, user: str, *arguments: str) -> Any:
        return self._inside.attempt(*arguments, *self._words(user))

    def __call__(self, user: str, *arguments: str) -> Any:
        return self._inside(*arguments, *self._words(user))


@pytest.fixture
def as_user(with_logins: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> As:
    return As(Inside(capsys), tmp_path, with_logins)


def test_the_life_of_a_token(as_user: As, with_logins: str, tmp_path: Path) -> None:
    made = as_user("alice", "token", "create", "--renewer", "bob", "--lifetime", "1h", "--json").json
    assert (made["owner"], made["renewers"]) == ("User:alice", ["User:bob"])
    assert made["expires_ms_max"] - made["issued_ms"] == 3_600_000
    secret = made["hmac"]
    assert len(base64.b64decode(secret)) == 64

    (listed,) = as_user("alice", "token", "list", "--json").json
    assert (listed["token_id"], listed["hmac"]) == (made["token_id"], None)
    (listed,) = as_user("alice", "token", "list", "--json", "--secrets", "--owner", "alice").json
    assert listed["hmac"] == secret
    table = as_user("alice", "token", "list")
    assert made["token_id"] in table.out.decode()
    assert secret not in table.out.decode()

    settings = {
        "bootstrap.servers": with_logins,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="{made["token_id"]}" password="{secret}" '
        'tokenauth="true";',
    }
    with Admin(settings) as admin:
        assert admin.list_brokers()

    renewed = as_user("bob", "token", "renew", made["token_id"], "--for", "30m", "--json").json
    assert renewed["expires_ms"] <= made["expires_ms_max"]
    unasked = as_user.attempt("alice", "token", "expire", made["token_id"])
    assert (unasked.code, "needs a confirmation" in unasked.err) == (2, True)
    assert as_user("alice", "token", "expire", made["token_id"], "--yes").out.startswith(b"ended ")
    gone = as_user.attempt("alice", "token", "renew", made["token_id"], "--json")
    assert (gone.code, json.loads(gone.err)["error"]) == (1, "INVALID_INPUT")


def test_a_file_with_the_secret(as_user: As, tmp_path: Path) -> None:
    path = tmp_path / "job.properties"
    made = as_user("alice", "token", "create", "--write", str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert 'tokenauth="true"' in path.read_text()
    secret = path.read_text().split('password="')[1].split('"')[0]
    assert len(base64.b64decode(secret)) == 64
    assert secret not in made.out.decode() + made.err
    taken = as_user.attempt("alice", "token", "create", "--write", str(path))
    assert taken.code == 1
    (token,) = as_user("alice", "token", "list", "--json").json
    as_user("alice", "token", "expire", token["token_id"], "--yes")


def test_wrong_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["token", "list", "--secrets"]) == 2
    assert "only with --json" in capsys.readouterr().err
    path = tmp_path / "new"
    assert run(["token", "create", "--write", str(path), "-b", "127.0.0.1:1", "--timeout", "0.3"]) == 1
    assert not path.exists(), "nothing is left of a token that was not made"


def test_without_a_login(with_logins: str, cli_broker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A client that has not logged in has no tokens."""
    assert run(["token", "create", "-b", cli_broker.bootstrap, "--json"]) == 1
    told = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert told["error"] in ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", "DELEGATION_TOKEN_AUTH_DISABLED")
