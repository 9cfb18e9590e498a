"""Who has no quota: other brokers, and logins. A client that only sends the same requests has one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from harness.authorizers import Anybody, Nobody
from headrace.base.limits import QUOTA_CLIENT_ID_CHARACTERS_MAX
from headrace.client.security.sasl import Login as ClientLogin
from headrace.client.security.sasl import Plain
from headrace.node.connection import Connection
from headrace.node.effects import Mute
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from headrace.simulator.frames import request_bytes
from headrace.simulator.manual_host import ManualHost

LOGINS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_alice="a";',
}


def limited_host(key: str = "request_percentage", kind: str = "user", value: float = 1.0) -> ManualHost:
    """All users, or all client ids, have a quota."""
    host = ManualHost(LOGINS)
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=None)],
        ops=[OpData(key=key, value=value, remove=False)],
    )
    (result,) = host.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries
    assert result.error_code == 0
    return host


def is_throttled(host: ManualHost, connection: Connection, request: Any, version: int) -> bool:
    """Whether the client is muted that has this request served again and again."""
    for _ in range(3):
        assert host.ask(request, version, connection) is not None
        if connection.meters is not None:  # as the server does when it has served it
            connection.meters.spent(1.0, host.clock.now())
    return any(isinstance(one, Mute) and one.connection is connection for one in host.effects)


OF_BROKERS = [
    pytest.param(WriteTxnMarkersRequest(markers=[]), 1, id="markers"),
    pytest.param(AddPartitionsToTxnRequest(transactions=[]), 4, id="partitions"),
]


@pytest.mark.parametrize(("request_", "version"), OF_BROKERS)
def test_requests_of_brokers_are_not_throttled(request_: Any, version: int) -> None:
    host = limited_host()
    host.node.access.authorizer = Anybody()
    assert not is_throttled(host, host.connect(), request_, version)


@pytest.mark.parametrize(("request_", "version"), OF_BROKERS)
def test_who_has_no_right_to_them_is_throttled_as_everybody(request_: Any, version: int) -> None:
    host = limited_host()
    host.node.access.authorizer = Nobody()
    assert is_throttled(host, host.connect(), request_, version)


def logged_in(host: ManualHost) -> Connection:
    connection = host.connect("LOGIN")
    client = ClientLogin(Plain("alice", "a"), Random(7), None)
    step: Any = client.accepted(host.ask(client.begin(), 1, connection))
    assert client.continued(host.ask(step, 1, connection)) is None
    return connection


def test_logins_are_not_throttled() -> None:
    host = limited_host()
    connection = logged_in(host)
    assert connection.meters is None
    host.advance(2.0)
    host.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, connection)
    assert connection.meters is None, "a login again, neither"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: SaslHandshakeRequest(mechanism="PLAIN"), id="handshake"),
        pytest.param(lambda: SaslAuthenticateRequest(auth_bytes=b"x"), id="authenticate"),
    ],
)
def test_requests_for_a_login_that_begin_none_are_throttled(make: Callable[[], Any]) -> None:
    """Of a client that is in, too early for another login, and where there are no logins."""
    host = limited_host()
    connection = logged_in(host)
    host.advance(2.0)
    if isinstance(make(), SaslHandshakeRequest):
        login = ClientLogin(Plain("alice", "a"), Random(7), None)
        step: Any = login.accepted(host.ask(login.begin(), 1, connection))
        login.continued(host.ask(step, 1, connection))
    assert is_throttled(host, connection, make(), 1)
    assert is_throttled(host, host.connect(), make(), 1)


def test_long_client_ids_are_told_apart_and_not_remembered() -> None:
    """They are what clients say: thousands of them, with 32 KiB each, would fill the memory."""
    host = limited_host("producer_byte_rate", "client-id", 100.0)
    quotas = host.node.quotas
    connection = host.connect()

    def ask(client_id: str) -> None:
        frame = request_bytes(MetadataRequest.KEY, 9, 1, client_id, MetadataRequest(topics=[]))
        host.asked[connection.id].append((MetadataRequest.KEY, 9))
        host.send_frame(connection, frame)
        assert host.receive(connection) is not None

    long = "x" * (QUOTA_CLIENT_ID_CHARACTERS_MAX + 1)
    for client_id in (long, long + "y"):
        ask(client_id)
    now = host.clock.now()
    first, second = (quotas.of(now, connection, client_id) for client_id in (long, long + "y"))
    assert first is not None
    assert second is not None
    assert first.produce is not second.produce
    assert quotas.of(now, connection, long).produce is first.produce  # type: ignore[union-attr]
    kept = [text for key in quotas._clients for text in key if text is not None]
    tables = quotas._tables
    assert tables is not None
    kept += [text for key in tables.produce._meters._meters for text in key if text is not None]  # type: ignore[attr-defined]
    assert max(map(len, kept)) <= QUOTA_CLIENT_ID_CHARACTERS_MAX
