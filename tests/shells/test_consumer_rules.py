"""The rules of headrace.Consumer: one thread at a time, nobody waits for ever, a slow loop is told so."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from harness.wait import WAIT_S, eventually
from headrace import (
    ClientError,
    Closed,
    ConcurrentUse,
    Consumer,
    InvalidInput,
    InvalidSetting,
    KafkaError,
    Message,
    PartitionsLost,
    TopicPartition,
    WokenUp,
)
from headrace.client.membership import heartbeat
from headrace.testing import Broker, Record

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def servers(headrace_broker: Broker) -> str:
    headrace_broker.create_topic("orders")
    headrace_broker.produce_all("orders", ["first", "second", "third"])
    return headrace_broker.bootstrap_servers


def member(servers: str, **settings: Any) -> Consumer:
    return Consumer(servers, **{"group_id": "billing", "auto_offset_reset": "earliest"} | settings)


def has_come(moment: float) -> bool:
    return time.monotonic() > moment


def polling(consumer: Consumer, pool: ThreadPoolExecutor) -> Any:
    """A poll that waits, in another thread."""
    polls = consumer.metrics()["polls"]
    waiting = pool.submit(consumer.poll)
    eventually(lambda: consumer.metrics()["polls"] > polls, True)
    return waiting


def test_two_threads_at_once(servers: str) -> None:
    with Consumer(servers) as consumer, ThreadPoolExecutor(1) as pool:
        consumer.assign({ORDERS: 3})
        waiting = polling(consumer, pool)
        for call in (
            lambda: consumer.poll(0),
            lambda: consumer.seek(ORDERS, 0),
            lambda: consumer.assignment,
            consumer.close,
        ):
            with pytest.raises(ConcurrentUse):
                call()
        consumer.wakeup()
        with pytest.raises(WokenUp):
            waiting.result(WAIT_S)
        consumer.seek(ORDERS, 0)  # one after the other is fine
        assert len(consumer.poll(WAIT_S)) == 3


def test_a_wakeup_is_not_lost(servers: str) -> None:
    with Consumer(servers) as consumer:
        consumer.assign({ORDERS: 0})
        consumer.wakeup()
        with pytest.raises(WokenUp):
            consumer.poll(WAIT_S)
        assert len(consumer.poll(WAIT_S)) == 3


def test_a_closed_consumer(servers: str) -> None:
    consumer = member(servers)
    consumer.subscribe("orders")
    consumer.poll(WAIT_S)
    consumer.close()
    consumer.close()
    calls: list[Callable[[], Any]] = [
        consumer.poll,
        consumer.poll_arrow,
        consumer.commit,
        consumer.unsubscribe,
        consumer.group_metadata,
        lambda: consumer.assignment,
        lambda: consumer.seek(ORDERS, 1),
        lambda: consumer.position(ORDERS),
        lambda: consumer.subscribe("orders"),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert list(consumer) == []


def test_one_that_nobody_closed(servers: str) -> None:
    """Its thread ends all the same, and it says so."""
    consumer = member(servers)
    consumer.subscribe("orders")
    consumer.poll(WAIT_S)
    consumers = [consumer]
    del consumer
    with pytest.warns(ResourceWarning, match="was not closed"):
        consumers.clear()
    eventually(lambda: "headrace-consumer" in {thread.name for thread in threading.enumerate()}, False)


def test_what_cannot_be(servers: str) -> None:
    with pytest.raises(InvalidSetting, match=r"did you mean group_id\?"):
        Consumer(servers, grup_id="billing")
    with pytest.raises(InvalidInput, match="value_deserializer is a int"):
        Consumer(servers, value_deserializer=5)  # type: ignore[arg-type]
    with Consumer(servers) as alone:
        for call in (
            lambda: alone.subscribe("orders"),
            lambda: alone.commit({ORDERS: 1}),
            lambda: alone.committed([ORDERS]),
            lambda: alone.group_metadata(),
            lambda: alone.seek(ORDERS, 0),
            lambda: alone.poll(0, max_records=0),
            lambda: alone.pause([ORDERS]),
        ):
            with pytest.raises(InvalidInput):
                call()
    with member(servers) as consumer:
        for nonsense in ({}, {"topics": "^ord"}, {"topics": ["orders"], "pattern": "o"}, {"pattern": "["}):
            with pytest.raises(InvalidInput):
                consumer.subscribe(**nonsense)
        consumer.subscribe("orders")
        with pytest.raises(InvalidInput, match="unsubscribe"):
            consumer.assign([ORDERS])


def test_nobody_polls_inside_a_poll(servers: str) -> None:
    raised: list[str] = []

    def listen(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for call in (consumer.poll, consumer.close, consumer.unsubscribe):
            with pytest.raises(InvalidInput) as error:
                call()
            raised.append(str(error.value))

    with member(servers) as consumer:
        consumer.subscribe("orders", on_assign=listen)
        assert len(consumer.poll(WAIT_S)) == 3
    assert len(raised) == 3
    assert all("during a poll" in said for said in raised)


def test_a_broker_that_does_not_answer(headrace_broker: Broker) -> None:
    """Every call has an end, and the consumer goes on when the broker does."""
    headrace_broker.create_topic("orders")
    with member(headrace_broker.bootstrap_servers, request_timeout_ms=200) as consumer:
        for api in ("Fetch", "ListOffsets", "OffsetFetch"):
            headrace_broker.faults.drop_after_write(times=None, api=api)
        consumer.assign([ORDERS])
        assert consumer.poll(0.1) == []
        for call in (
            lambda: consumer.position(ORDERS, timeout=0.1),
            lambda: consumer.end_offsets([ORDERS], timeout=0.1),
            lambda: consumer.committed([ORDERS], timeout=0.1),
        ):
            with pytest.raises(ClientError) as raised:
                call()
            assert raised.value.is_retriable
        headrace_broker.faults.clear()
        assert consumer.position(ORDERS) == 0


def test_no_broker_at_all() -> None:
    with Consumer("127.0.0.1:1", group_id="billing", default_api_timeout_ms=200) as consumer:
        consumer.subscribe("orders")
        assert consumer.poll(0.1) == []
        with pytest.raises(ClientError) as raised:
            consumer.end_offsets([ORDERS])
        assert raised.value.is_retriable
        consumer.close(0.1)


def test_what_cannot_be_mended_is_told_at_every_poll(servers: str) -> None:
    """Whoever catches and polls on must not wait for messages that will never come."""
    names = {"group_instance_id": "the-one", "heartbeat_interval_ms": 50}
    with member(servers, **names) as first, member(servers, **names) as second:
        first.subscribe("orders")
        assert len(first.poll(WAIT_S)) == 3
        second.subscribe("orders")
        second.poll(0)
        for _ in range(2):
            with pytest.raises(KafkaError) as raised:
                first.poll(WAIT_S)
            assert raised.value.name == "FENCED_INSTANCE_ID"
        second.close()
        first.unsubscribe()
        assert first.poll(0) == []
        first.assign([ORDERS])
        first.seek(ORDERS, 2)
        assert [message.offset for message in first.poll(WAIT_S)] == [2]


def test_a_slow_loop_is_told_so(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once while nobody polls, with what to set; and by the next poll, with how long it took."""
    lost: list[TopicPartition] = []
    with member(servers, max_poll_interval_ms=300, heartbeat_interval_ms=50) as consumer:
        consumer.subscribe("orders", on_lost=lambda _, partitions: lost.extend(partitions))
        assert len(consumer.poll(WAIT_S)) == 3

        def said() -> list[str]:
            return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

        eventually(lambda: len(said()), 1)
        assert re.search(
            r"not called for max\.poll\.interval\.ms \(300\).*max\.poll\.records \(500\)", said()[0]
        )
        with pytest.raises(PartitionsLost):
            consumer.commit({ORDERS: 3})
        consumer.poll(0)
        assert re.search(r"[0-9.]+ s passed between two polls", said()[1])
        assert lost == [ORDERS]
        consumer.seek_to_beginning()
        found: list[Message] = []
        deadline = time.monotonic() + WAIT_S
        while not found and time.monotonic() < deadline:
            found = consumer.poll(0.2)
        assert [message.value for message in found] == [b"first", b"second", b"third"]


@pytest.fixture
def quick_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever iterates shows its life, and hears of its group, twenty times a second."""
    monkeypatch.setattr(heartbeat, "PULSE_S", 0.05)


@pytest.mark.usefixtures("quick_pulse")
def test_whoever_iterates_slowly_gives_up_what_it_has_not_handed_out(headrace_broker: Broker) -> None:
    """A member that works on the messages of one poll for long hears of a rebalance all the same, and the
    automatic commit covers exactly what it was given: together the members see every message once.
    """
    headrace_broker.create_topic("orders", partitions=2)
    sent = [f"{number}" for number in range(20)]
    headrace_broker.produce_all("orders", [Record.of(each, partition=int(each) % 2) for each in sent])
    servers, seen = headrace_broker.bootstrap_servers, []
    with member(servers, heartbeat_interval_ms=50) as slow, member(servers) as quick:
        slow.subscribe("orders")
        seen += [next(slow).value for _ in range(5)]
        assert len(slow.assignment) == 2
        quick.subscribe("orders")
        while len(slow.assignment) != 1:
            seen += [message.value for message in quick.poll(0)]
            message = next(slow)
            assert ("orders", message.partition) in slow.assignment
            seen.append(message.value)
            moment = time.monotonic()
            eventually(partial(has_come, moment + 0.06), True)
        while len(seen) < len(sent):
            for consumer in (slow, quick):
                seen += [message.value for message in consumer.poll(0.1)]
    assert sorted(seen, key=int) == [each.encode() for each in sent]


@pytest.mark.usefixtures("quick_pulse")
def test_iterating_slowly_is_not_being_stuck(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every message that is asked for is a sign of life, also when they were fetched long ago."""
    with member(servers, max_poll_interval_ms=1500, heartbeat_interval_ms=50) as consumer:
        consumer.subscribe("orders")
        begun = time.monotonic()
        for number, _ in enumerate(consumer):
            if number == 2:
                break
            eventually(partial(has_come, begun + 0.8 * (number + 1)), True)
        assert consumer.commit()[ORDERS].offset == 3
    assert not [record for record in caplog.records if "poll" in record.getMessage()]


@pytest.mark.parametrize("is_subscribed", [True, False], ids=["subscribed", "assigned"])
def test_a_block_that_fails_does_not_commit_what_it_had_not_handled(
    servers: str, is_subscribed: bool
) -> None:
    def work(handle: Callable[[Message], None]) -> None:
        with member(servers) as consumer:
            consumer.subscribe(["orders"]) if is_subscribed else consumer.assign([ORDERS])
            for message in consumer:
                handle(message)
                if message.value == b"third":
                    return

    def fail(message: Message) -> None:
        if message.value == b"second":
            raise RuntimeError("the database is away")

    handled: list[Message] = []
    with pytest.raises(RuntimeError, match="database"):
        work(fail)
    work(handled.append)
    assert [message.value for message in handled] == [b"first", b"second", b"third"]
    with member(servers) as consumer:
        assert consumer.committed([ORDERS])[ORDERS] == (3, 0, "")


@pytest.mark.parametrize("is_subscribed", [True, False], ids=["subscribed", "assigned"])
def test_a_block_that_fails_commits_what_earlier_polls_returned(servers: str, is_subscribed: bool) -> None:
    def work() -> None:
        with member(servers) as consumer:
            consumer.subscribe(["orders"]) if is_subscribed else consumer.assign([ORDERS])
            assert len(consumer.poll(WAIT_S, max_records=2)) == 2
            assert [message.value for message in consumer.poll(WAIT_S)] == [b"third"]
            raise RuntimeError("the database is away")

    with pytest.raises(RuntimeError, match="database"):
        work()
    with member(servers) as consumer:
        assert consumer.committed([ORDERS])[ORDERS] == (2, 0, "")


def test_an_iteration_speaks_for_the_generation_that_it_has_heard_of(servers: str) -> None:
    """Its transactions would be refused until it has read all that it had fetched before."""
    settings = {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 50}
    with member(servers, **settings) as consumer, member(servers, **settings) as other:
        consumer.subscribe(["orders"])
        assert next(consumer).value == b"first"
        before = consumer.group_metadata()
        group = consumer._core.session.group
        assert group is not None
        other.subscribe(["orders"])
        with ThreadPoolExecutor(1) as pool:
            waiting = polling(other, pool)
            eventually(lambda: group.membership.is_stable, True)
            eventually(lambda: group.membership.identity().epoch > before.generation, True)  # type: ignore[union-attr]
            consumer._core.poll_interval.pulse_at = consumer._core._clock()
            assert next(consumer).value == b"second"
            assert consumer.group_metadata().generation > before.generation
            other.wakeup()
            with pytest.raises(WokenUp):
                waiting.result(WAIT_S)


def test_nothing_is_read_before_a_listener_has_found_where_to_begin(servers: str) -> None:
    """Its database may be away for a moment: reading elsewhere would leave messages out, or repeat some."""
    calls: list[str] = []

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append("assigned")
        if len(calls) < 3:
            raise RuntimeError("the database is away")
        consumer.seek(ORDERS, 1)

    with member(servers, auto_offset_reset="latest") as consumer:
        consumer.subscribe(["orders"], on_assign=assigned)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="database"):
                consumer.poll(WAIT_S)
        assert [message.value for message in consumer.poll(WAIT_S)] == [b"second", b"third"]
    assert len(calls) == 3


def test_a_listener_that_always_fails_does_not_keep_close_from_ending(servers: str) -> None:
    calls: list[str] = []

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append("assigned")
        raise RuntimeError("the database is away")

    consumer = member(servers)
    consumer.subscribe(["orders"], on_assign=assigned)
    with pytest.raises(RuntimeError, match="database"):
        consumer.poll(WAIT_S)
    consumer.close()
    assert len(calls) == 1


def test_a_listener_that_failed_is_not_called_for_what_was_lost_meanwhile(servers: str) -> None:
    calls: list[str] = []

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append("assigned")
        consumer.seek(ORDERS, 1)
        if len(calls) == 1:
            raise RuntimeError("the database is away")

    with member(servers, max_poll_interval_ms=300, heartbeat_interval_ms=50) as consumer:
        consumer.subscribe(
            ["orders"], on_assign=assigned, on_lost=lambda consumer, partitions: calls.append("lost")
        )
        with pytest.raises(RuntimeError, match="database"):
            consumer.poll(WAIT_S)
        eventually(lambda: consumer._core.session.assignment, frozenset())
        assert [message.value for message in consumer.poll(WAIT_S)] == [b"second", b"third"]
    assert calls == ["assigned", "lost", "assigned"]


def test_a_rebalance_that_assigns_nothing_rewinds_nothing(servers: str) -> None:
    """Cooperative groups call on_assign without partitions; a listener hands them on as they are."""
    settings = {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 50}
    assigned: list[list[TopicPartition]] = []

    def from_the_start(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.append(partitions)
        consumer.seek_to_beginning(partitions)

    with member(servers, **settings) as consumer, member(servers, **settings) as other:
        consumer.subscribe(["orders"], on_assign=from_the_start)
        assert len(consumer.poll(WAIT_S)) == 3
        other.subscribe(["orders"])
        with ThreadPoolExecutor(1) as pool:
            waiting = polling(other, pool)
            again: list[Message] = []
            while len(assigned) == 1:
                again += consumer.poll(0.05)
            again += consumer.poll(0.5)
            other.wakeup()
            with pytest.raises(WokenUp):
                waiting.result(WAIT_S)
    assert (assigned, again) == ([[ORDERS], []], [])
