"""Every API that is served, on listeners that ask for a login, from clients that have none: before it, in the
middle of it, after a refusal, and when the session has ended. Nothing is decoded or done for them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from harness.recorded_answers import VALUES, fill, requests
from harness.remote_broker import CONTROLLER_ALONE
from headrace.client.security.sasl import Login as ClientLogin
from headrace.client.security.sasl import Plain
from headrace.node.connection import Connection
from headrace.node.login import BEFORE_LOGIN
from headrace.node.routes import SERVED, SERVED_TO_NODES
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.simulator.manual_host import ManualHost

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGINS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "connections.max.reauth.ms": "5000",
    "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="a";',
    "listener.name.controller.plain.sasl.jaas.config": f'{MODULE} user_alice="a";',
}
BROKER = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
}
CONTROLLER = CONTROLLER_ALONE | {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT"}
EVERY_KEY = sorted({*SERVED, *SERVED_TO_NODES} - set(BEFORE_LOGIN))
KINDS = requests(EVERY_KEY)


def nothing_said(host: ManualHost, connection: Connection) -> None:
    pass


def mechanism_chosen(host: ManualHost, connection: Connection) -> None:
    assert host.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, connection).error_code == 0


def refused(host: ManualHost, connection: Connection) -> None:
    mechanism_chosen(host, connection)
    host.send(connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1)


def logged_in(host: ManualHost, connection: Connection) -> None:
    client = ClientLogin(Plain("alice", "a"), Random(7), None)
    step: Any = client.accepted(host.ask(client.begin(), 1, connection))
    assert client.continued(host.ask(step, 1, connection)) is None


def session_ended(host: ManualHost, connection: Connection) -> None:
    logged_in(host, connection)
    host.advance(5.1)


def logging_in_again(host: ManualHost, connection: Connection) -> None:
    logged_in(host, connection)
    host.advance(2.0)
    mechanism_chosen(host, connection)


Stage = Callable[[ManualHost, Connection], None]
STAGES: list[Stage] = [nothing_said, mechanism_chosen, refused, session_ended, logging_in_again]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@pytest.mark.parametrize("listener", ["LOGIN", "CONTROLLER"])
def test_nothing_is_served(listener: str, stage: Stage) -> None:
    host = ManualHost(LOGINS | (BROKER if listener == "LOGIN" else CONTROLLER))
    for key in EVERY_KEY:
        version = (SERVED.get(key) or SERVED_TO_NODES[key])[1]
        connection = host.connect(listener)
        stage(host, connection)
        served = host.node.metrics.apis.get(key)
        before = 0 if served is None else served.requests
        host.send(connection, fill(KINDS[key], version, VALUES), version)
        assert host.receive(connection) is None, key
        after = host.node.metrics.apis.get(key)
        assert (0 if after is None else after.requests) == before, key
        host.advance(0.2)
        assert connection.id in host.closed, key


def test_after_the_login_the_same_requests_are_served() -> None:
    """Otherwise the test above would say nothing."""
    host = ManualHost(LOGINS | BROKER)
    connection = host.connect("LOGIN")
    logged_in(host, connection)
    assert host.ask(fill(KINDS[3], 9, VALUES), 9, connection) is not None
    assert host.node.metrics.apis[3].requests == 1
