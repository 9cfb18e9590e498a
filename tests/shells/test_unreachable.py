"""First contact with an address where there is no broker, or one that speaks otherwise: every client of ours
says so after a moment, and raises the cause by name when its time is up.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

import headrace
import headrace.aio
from harness.scripted_peer import Peer, ScriptedServer, closed_port
from harness.wait import eventually
from headrace import BadResponse, ClientError, InvalidInput, RecordLost, TimedOut, Unreachable
from headrace.client.network.reachability import Reachability
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TLS_ALERT = bytes.fromhex("15030300020228")
SOON_MS = 150
LATER_MS = 60_000


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reachability, "WARN_AFTER_S", 0.0)  # at the first failure
    monkeypatch.setattr(Reachability, "SLOW_S", 30.0)
    for name in ("producer.core.CHECK_S", "admin.session.LOOK_S", "consumer.core.PULSE_S"):
        monkeypatch.setattr(f"headrace.client.{name}", 0.05)


def hang_up(peer: Peer) -> None:
    """As a listener that takes our first bytes for nonsense."""
    peer.socket.recv(1)


def reset(peer: Peer) -> None:
    peer.socket.recv(1)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class UnreachableAddress(NamedTuple):
    address: str
    cause: str  # what the error has to say
    setting: str = ""  # that the advice has to name
    settings: dict[str, Any] = {}


@contextmanager
def refused() -> Iterator[UnreachableAddress]:
    address = str(closed_port())
    yield UnreachableAddress(address, f"cannot connect to {address}: connection refused")


@contextmanager
def unnamed() -> Iterator[UnreachableAddress]:
    yield UnreachableAddress("a" * 70 + ":9092", "cannot find the host 'aaa")  # no name can be as long


@contextmanager
def silent() -> Iterator[UnreachableAddress]:
    with ScriptedServer(Peer.wait_for_end) as server:
        yield UnreachableAddress(str(server.address), "does not answer yet")


@contextmanager
def resetting() -> Iterator[UnreachableAddress]:
    with ScriptedServer(reset) as server:
        yield UnreachableAddress(str(server.address), f"{server.address}: the broker closed the connection")


@contextmanager
def tls_port() -> Iterator[UnreachableAddress]:
    with ScriptedServer(hang_up) as server:
        yield UnreachableAddress(str(server.address), "is it a TLS listener?", "security.protocol to SSL")


@contextmanager
def plaintext_port() -> Iterator[UnreachableAddress]:
    with ScriptedServer(hang_up) as server:
        secure = {"security_protocol": "SSL", "enable_ssl_certificate_verification": False}
        yield UnreachableAddress(
            str(server.address), "is it a plaintext listener?", "security.protocol to PLAINTEXT", secure
        )


@contextmanager
def wrongly_advertised() -> Iterator[UnreachableAddress]:
    """The bootstrap address answers; the broker that it names cannot be reached."""
    elsewhere = closed_port()
    broker = MetadataResponseBroker(node_id=1, host=elsewhere.host, port=elsewhere.port)
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])

    def script(peer: Peer) -> None:
        peer.negotiate()
        while True:
            asked = peer.read()
            topics = [
                MetadataResponseTopic(name=topic.name, partitions=[partition])
                for topic in asked.request.topics or ()
            ]
            peer.answer(asked, MetadataResponse(brokers=[broker], topics=topics))

    with ScriptedServer(script) as server:
        yield UnreachableAddress(str(server.address), f"cannot connect to {elsewhere}: connection refused")


ADDRESSES = [refused, unnamed, silent, resetting, tls_port, plaintext_port]


# --- the calls, on both shells ----------------------------------------------------------------------------


def poll(address: str, **settings: Any) -> None:
    with headrace.Consumer(address, **settings) as consumer:
        consumer.assign([("t", 0)])
        consumer.poll(60)


def poll_in_a_group(address: str, **settings: Any) -> None:
    consumer = headrace.Consumer(address, group_id="g", **settings)
    try:
        consumer.subscribe(["t"])
        consumer.poll(60)
    finally:
        consumer.close(0)


def end_offsets(address: str, **settings: Any) -> None:
    with headrace.Consumer(address, **settings) as consumer:
        consumer.end_offsets([("t", 0)])


def send(address: str, **settings: Any) -> None:
    with headrace.Producer(address, **settings) as producer:
        producer.send("t", b"x")


def init_transactions(address: str, **settings: Any) -> None:
    producer = headrace.Producer(address, transactional_id="x", **settings)
    try:
        producer.init_transactions()
    finally:
        producer.close(0)


def list_topics(address: str, **settings: Any) -> None:
    with headrace.Admin(address, **settings) as admin:
        admin.list_topics()


def aio_poll(address: str, **settings: Any) -> None:
    async def story() -> None:
        async with headrace.aio.Consumer(address, **settings) as consumer:
            consumer.assign([("t", 0)])
            await consumer.poll(60)

    asyncio.run(story())


def aio_send(address: str, **settings: Any) -> None:
    async def story() -> None:
        async with headrace.aio.Producer(address, **settings) as producer:
            await producer.send("t", b"x")

    asyncio.run(story())


def aio_list_topics(address: str, **settings: Any) -> None:
    async def story() -> None:
        async with headrace.aio.Admin(address, **settings) as admin:
            await admin.list_topics()

    asyncio.run(story())


CALLS = [
    poll,
    poll_in_a_group,
    end_offsets,
    send,
    init_transactions,
    list_topics,
    aio_poll,
    aio_send,
    aio_list_topics,
]
FEW = [poll, send, aio_list_topics]


@pytest.mark.parametrize(
    ("address_of", "call"),
    [
        (address_of, call)
        for address_of in ADDRESSES
        for call in (CALLS if address_of in (refused, tls_port) else FEW)
    ],
)
def test_a_call_says_what_is_wrong_and_raises_it_by_a_setting(
    address_of: Callable[[], Any],
    call: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if address_of is silent:
        monkeypatch.setattr(Reachability, "SLOW_S", 0.1)
    with address_of() as found, pytest.raises(Unreachable) as raised:
        call(found.address, headrace_unreachable_timeout_ms=SOON_MS, **found.settings)
    assert found.cause in str(raised.value)
    assert found.setting in raised.value.advice
    assert "topic's name" not in raised.value.advice
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(found.cause in each and found.setting in each for each in warned), warned


@pytest.mark.parametrize(
    ("call", "timeout"),
    [
        (send, "max_block_ms"),
        (aio_send, "max_block_ms"),
        (end_offsets, "default_api_timeout_ms"),
        (list_topics, "default_api_timeout_ms"),
        (aio_list_topics, "default_api_timeout_ms"),
    ],
)
@pytest.mark.parametrize("address_of", [refused, tls_port])
def test_without_the_setting_the_last_error_names_the_cause(
    address_of: Callable[[], Any], call: Callable[..., None], timeout: str
) -> None:
    with address_of() as found, pytest.raises(ClientError) as raised:
        call(found.address, **{timeout: SOON_MS})
    assert found.cause in str(raised.value)
    assert "topic's name" not in raised.value.advice


def test_a_poll_with_a_timeout_gives_nothing_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with refused() as found, headrace.Consumer(found.address) as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(0.5) == []
    assert any(found.cause in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("call", CALLS)
def test_what_is_known_to_be_tls_is_raised_at_once(call: Callable[..., None]) -> None:
    def alert(peer: Peer) -> None:
        peer.read()
        peer.send(TLS_ALERT)
        peer.wait_for_end()

    with ScriptedServer(alert) as server, pytest.raises(BadResponse, match="answered with TLS") as raised:
        call(str(server.address))
    assert "security.protocol" in raised.value.advice


@pytest.mark.parametrize("call", [poll, aio_poll])
def test_a_broker_under_an_address_that_is_wrong(
    call: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with wrongly_advertised() as found, pytest.raises(Unreachable) as raised:
        call(found.address, headrace_unreachable_timeout_ms=SOON_MS)
    assert found.cause in str(raised.value)
    assert any(found.cause in record.getMessage() for record in caplog.records)


def test_a_record_that_is_lost_names_the_cause() -> None:
    with wrongly_advertised() as found:
        settings: dict[str, Any] = {
            "delivery_timeout_ms": 400,
            "request_timeout_ms": 300,
            "linger_ms": 0,
            "acks": 1,
        }
        with headrace.Producer(found.address, **settings) as producer:
            delivery = producer.send("t", b"x")
            with pytest.raises(RecordLost) as raised:
                delivery.get(60)
    assert found.cause in str(raised.value)


def test_waits_that_are_late_name_the_cause() -> None:
    with wrongly_advertised() as found:
        producer = headrace.Producer(found.address, acks=1)
        try:
            delivery = producer.send("t", b"x")
            for wait in (lambda: producer.flush(0.5), lambda: delivery.get(0.1)):
                with pytest.raises(TimedOut) as raised:
                    wait()
                assert found.cause in str(raised.value)
        finally:
            producer.close(0)


def test_a_partition_that_is_not_known_is_no_reason_to_wait_for_ever() -> None:
    """It may be new: brokers are asked again, and cannot be reached."""
    with wrongly_advertised() as found:
        producer = headrace.Producer(
            found.address, acks=1, headrace_unreachable_timeout_ms=SOON_MS, max_block_ms=LATER_MS
        )
        try:
            producer.send("t", b"x")
            eventually(lambda: producer._core.sender.reachability.outage is not None, True)
            with pytest.raises((Unreachable, InvalidInput)):
                producer.send("t", b"x", partition=7)
        finally:
            producer.close(0)


def test_the_outage_is_over_when_a_broker_comes() -> None:
    address = closed_port()

    def serve(peer: Peer) -> None:
        peer.negotiate()
        while True:
            peer.answer(peer.read(), MetadataResponse(cluster_id="c"))

    with headrace.Admin(str(address), headrace_unreachable_timeout_ms=LATER_MS) as admin:
        reachability = admin._session.reachability
        with pytest.raises(Unreachable):
            admin.within(0.3).list_topics()
        assert reachability.outage is not None
        with ScriptedServer(serve, at=address):
            assert admin.list_topics() == []
        assert reachability.outage is None
