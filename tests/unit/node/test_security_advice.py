"""What settings leave open: the node says so."""

from __future__ import annotations

import pytest

from headrace.node.security_advice import advice
from headrace.node.settings import Settings

NODE = {"node.id": "1", "process.roles": "broker,controller", "log.dirs": "/data"}
GUARDED = {"authorizer.class.name": "standard", "super.users": "User:admin"}


def events(**settings: str) -> list[tuple[str, str]]:
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return [(one.event, one.subject) for one in advice(Settings.parse(NODE | named))]


def test_without_listeners_a_node_is_for_this_machine_alone() -> None:
    (listener,) = Settings.parse(NODE).listeners
    assert (listener.host, listener.port, listener.is_loopback) == ("127.0.0.1", 9092, True)
    assert events() == []


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.1.2.3", "[::]", "broker.example.com"])
def test_plaintext_that_other_machines_reach(host: str) -> None:
    assert events(listeners=f"PLAINTEXT://{host}:9092") == [("listener_without_tls", "PLAINTEXT")]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.0.1"])
def test_plaintext_that_they_do_not(host: str) -> None:
    assert events(listeners=f"PLAINTEXT://{host}:9092") == []


def test_a_login_without_encryption() -> None:
    found = events(listeners="SASL_PLAINTEXT://:9092", sasl_enabled_mechanisms="SCRAM-SHA-512")
    assert found == [("listener_without_tls", "SASL_PLAINTEXT")]


def test_tls_is_not_warned_of() -> None:
    assert events(listeners="SSL://:9093", ssl_keystore_location="k.pem") == []


def test_an_authorizer_that_nobody_can_log_in_for() -> None:
    guarded = {name.replace(".", "_"): text for name, text in GUARDED.items()}
    assert events(**guarded) == [("authorizer_without_logins", "authorizer.class.name")]
    login = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "sasl_enabled_mechanisms": "PLAIN"}
    assert events(**guarded, **login) == []
    certificates = {
        "listeners": "SSL://127.0.0.1:9092",
        "ssl_keystore_location": "k.pem",
        "ssl_truststore_location": "t.pem",
        "ssl_client_auth": "required",
    }
    assert events(**guarded, **certificates) == []


def test_super_users_without_a_password() -> None:
    settings = {
        "listeners": "LOGIN://127.0.0.1:9092,OPEN://127.0.0.1:9094",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "standard",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    found = advice(Settings.parse(NODE | settings))
    assert [(one.event, one.subject) for one in found] == [("anonymous_super_user", "OPEN")]
    without = settings | {"super.users": "User:admin"}
    assert advice(Settings.parse(NODE | without)) == []
