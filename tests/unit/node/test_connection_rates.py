"""New connections: those of an address that makes too many are closed, others wait for their turn."""

from __future__ import annotations

import pytest

from headrace.machines.configs.values import InvalidConfig
from headrace.node.connection import Connection
from headrace.node.effects import Mute
from headrace.node.settings import Settings
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.simulator.manual_host import ManualHost

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def limit(host: ManualHost, address: str | None, rate: float | None) -> None:
    entity = [EntityData(entity_type="ip", entity_name=address)]
    op = OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)
    (result,) = host.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1).entries
    assert result.error_code == 0


def held_for(host: ManualHost, connection: Connection) -> float:
    host.settle()
    mutes = [effect for effect in host.effects if isinstance(effect, Mute)]
    of_this = [mute.until for mute in mutes if mute.connection is connection]
    return of_this[-1] - host.clock.mono if of_this else 0.0


def connect(host: ManualHost, times: int, listener: str | None = None) -> list[float]:
    return [held_for(host, host.connect(listener)) for _ in range(times)]


def test_an_address_that_connects_too_often_is_held_and_then_closed() -> None:
    host = ManualHost()
    limit(host, "127.0.0.1", 1)
    host.advance(60)
    assert connect(host, 10) == [0.0] * 10
    refused = host.connect()
    assert held_for(host, refused) == 1.0
    host.advance(0.99)
    assert refused.id not in host.closed
    host.advance(0.01)
    assert "connection_creation_rate" in host.closed[refused.id]
    host.advance(10)
    assert connect(host, 1) == [0.0]
    limit(host, "127.0.0.1", None)
    assert connect(host, 100) == [0.0] * 100


def test_a_changed_quota_does_not_let_a_refused_connection_in() -> None:
    host = ManualHost()
    limit(host, None, 1)
    host.advance(60)
    connect(host, 10)
    refused = host.connect()
    host.settle()
    host.effects.clear()
    host.node.quotas.changed(host.clock.now())
    assert held_for(host, refused) == 0.0
    host.advance(1)
    assert refused.id in host.closed


def test_one_that_hangs_up_before_is_not_closed_again() -> None:
    host = ManualHost()
    limit(host, None, 1)
    host.advance(60)
    connect(host, 10)
    refused = host.connect()
    host.node.disconnected(host.clock.now(), refused)
    host.advance(2)
    assert host.node.metrics.connections == 11  # those of `connect`, and the one that set the quota


def test_more_connections_than_the_broker_takes_wait_for_their_turn() -> None:
    """Ten seconds of the rate may come at once; each further one waits half a second longer."""
    host = ManualHost(LISTENERS | {"max.connection.creation.rate": "2"})
    assert connect(host, 23) == [0.0] * 20 + [0.5, 1.0, 1.5]
    assert host.closed == {}
    assert connect(host, 30, "INSIDE") == [0.0] * 30, "other brokers do not wait for clients"
    assert host.node.quotas.throttled["connection"].times == 3


def test_a_listener_can_have_its_own_rate() -> None:
    settings = {
        "max.connection.creation.rate": "100",
        "listener.name.inside.max.connection.creation.rate": "1",
    }
    host = ManualHost(LISTENERS | settings)
    assert connect(host, 12, "INSIDE") == [0.0] * 10 + [1.0, 2.0]
    assert connect(host, 12) == [0.0] * 12


def test_limits_of_listeners_are_checked() -> None:
    texts = {"node.id": "1", "log.dirs": "data", **LISTENERS, "listener.name.inside.max.connections": "some"}
    with pytest.raises(InvalidConfig, match=r"listener\.name\.inside\.max\.connections"):
        Settings.parse(texts)
