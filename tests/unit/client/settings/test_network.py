"""Settings of connections, from what the user wrote."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.cluster import Address
from headrace.client.network.connection import RESPONSE_BYTES_MAX
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import consumer_keys, producer_keys
from headrace.client.settings.network import NetworkSettings, network_settings


def settings(**given: Any) -> NetworkSettings:
    return network_settings(Configuration(producer_keys(), {"bootstrap_servers": "a:1,b", **given}))


def test_kafkas_defaults() -> None:
    assert settings() == NetworkSettings((Address("a", 1), Address("b", 9092)))


def test_all_of_them() -> None:
    assert settings(
        client_id="me",
        socket_connection_setup_timeout_ms=1000,
        socket_connection_setup_timeout_max_ms=2000,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=20,
        connections_max_idle_ms=30,
        send_buffer_bytes=40,
        receive_buffer_bytes=50,
        metadata_recovery_strategy="none",
    ) == NetworkSettings(
        (Address("a", 1), Address("b", 9092)),
        client_id="me",
        setup_first_s=1.0,
        setup_last_s=2.0,
        reconnect_first_s=0.01,
        reconnect_last_s=0.02,
        idle_s=0.03,
        send_buffer_bytes=40,
        receive_buffer_bytes=50,
        may_rebootstrap=False,
    )


def test_a_first_value_above_the_last_is_the_last() -> None:
    made = settings(reconnect_backoff_ms=5000, socket_connection_setup_timeout_ms=60_000)
    assert (made.reconnect_first_s, made.reconnect_last_s) == (5.0, 5.0)
    assert (made.setup_first_s, made.setup_last_s) == (60.0, 60.0)


@pytest.mark.parametrize("key", ["connections_max_idle_ms", "send_buffer_bytes", "receive_buffer_bytes"])
def test_minus_one_leaves_it_alone(key: str) -> None:
    names = {"connections_max_idle_ms": "idle_s"}
    assert getattr(settings(**{key: -1}), names.get(key, key)) is None


def test_a_consumer_may_ask_for_more_than_the_usual_cap() -> None:
    keys = consumer_keys()
    given = {"bootstrap.servers": "a"}
    assert network_settings(Configuration(keys, given)).response_bytes_max == RESPONSE_BYTES_MAX
    many = Configuration(keys, given | {"fetch.max.bytes": 200 << 20})
    assert network_settings(many).response_bytes_max == 400 << 20
    most = Configuration(keys, given | {"fetch.max.bytes": 2**31 - 1})
    assert network_settings(most).response_bytes_max == 2**31 - 1
