"""A batch of many tasks ends in turns: whatever comes between two of them, each row is committed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.second_replica import add_second, second_fetches
from headrace.node.coordinators import markers
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.records.builder import build_batch
from headrace.records.fetched import Fetched
from headrace.records.reader import batches
from headrace.simulator.manual_host import ManualHost

TASKS = 6
PARTITIONS = 2
TURNS = 3  # two orders with two markers each exceed the budget of a turn, which is five

Producer = tuple[int, int]


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "MARKERS_PER_TURN", 5)
    monkeypatch.setattr(markers, "ORDERS_AT_ONCE", 2)


@pytest.fixture
def host() -> ManualHost:
    host = ManualHost()
    host.create_topic("out", PARTITIONS)
    host.ask(FindCoordinatorRequest(key_type=100, coordinator_keys=["app"]), 4)
    host.advance(5)
    return host


def join(host: ManualHost, batch_id: int, task: int) -> Producer:
    request = JoinSinkRequest(
        app_id="app", query_id="q", run_id="r", batch_id=batch_id, task=task, timeout_ms=60_000
    )
    joined = host.ask(request, 0)
    assert joined.error_code == 0, joined
    return joined.producer_id, joined.producer_epoch


def write(host: ManualHost, producer: Producer, value: str) -> None:
    """The same value to each partition."""
    for index in range(PARTITIONS):
        batch = build_batch(
            [(host.clock.now().wall_ms, None, value.encode(), ())],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            transactional=True,
        )
        request = host.produce_request("out", bytearray(batch))
        request.transactional_id = TRANSACTIONAL_ID_PREFIX + "app"
        request.topic_data[0].partition_data[0].index = index
        (told,) = host.ask(request, 12).responses
        assert told.partition_responses[0].error_code == 0


def written(host: ManualHost, batch_id: int = 0) -> list[Producer]:
    """The attempts of a batch, each with its row."""
    producers = []
    for task in range(TASKS):
        producers.append(join(host, batch_id, task))
        write(host, producers[-1], f"{batch_id}/{task}")
    return producers


def commit(host: ManualHost, producers: list[Producer], batch_id: int = 0) -> int:
    named = [CommittedAttempt(producer_id=each[0], producer_epoch=each[1]) for each in producers]
    request = CommitSinkRequest(app_id="app", query_id="q", run_id="r", batch_id=batch_id, attempts=named)
    code: int = host.ask(request, 0).error_code
    return code


def turn(host: ManualHost) -> None:
    """One call of the node, the next that time brings."""
    at = host.node.deadline()
    assert at is not None
    host.clock.advance(max(0.0, at - host.clock.mono))
    host.node.wake(host.clock.now())
    host.settle()


def ending(host: ManualHost) -> int:
    """Attempts that have not ended."""
    shards = host.node.broker.sinks.loaded_shards()
    return sum(len(sink.ending_attempts) for shard in shards for sink in shard.machine.sinks())


def marked(host: ManualHost) -> list[int]:
    """Markers in each partition."""

    def kinds(partition: Any) -> Iterator[bool]:
        log = partition.opened(host.clock.now())
        span = log.read(0, max_bytes=1 << 20, limit_offset=log.log_end_offset, at_least_one=True)
        for _, header in batches(span.file.read(span.position, span.size)):
            yield header.is_control

    return [sum(kinds(partition)) for partition in host.partitions("out")]


def committed(host: ManualHost) -> list[str]:
    """What a read_committed consumer sees in all partitions."""
    seen: list[str] = []
    for index in range(PARTITIONS):
        wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="out", partitions=[wanted])]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=1, topics=topics
        )
        told = host.ask(request, 11).responses[0].partitions[0]
        if not told.records:
            continue
        aborted = [(each.first_offset, each.producer_id) for each in told.aborted_transactions or []]
        fetched = Fetched("out", index, bytes(told.records), 0, aborted=aborted)
        while messages := fetched.take_messages(1000):
            seen += [message.value.decode() for message in messages if message.value is not None]
    return sorted(seen)


def rows(*batch_ids: int) -> list[str]:
    return sorted(
        f"{batch}/{task}" for batch in batch_ids for task in range(TASKS) for _ in range(PARTITIONS)
    )


def test_a_turn_has_few_markers_and_the_answer_comes_before_them(host: ManualHost) -> None:
    assert commit(host, written(host)) == 0
    assert (ending(host), marked(host)) == (TASKS, [0, 0])
    left = []
    for _ in range(TURNS):
        turn(host)
        left.append((ending(host), marked(host)))
    assert left == [(4, [2, 2]), (2, [4, 4]), (0, [6, 6])]
    assert committed(host) == rows(0)


def test_a_small_batch_ends_at_once(host: ManualHost) -> None:
    producers = [join(host, 0, task) for task in range(2)]
    assert commit(host, producers) == 0
    assert ending(host) == 0


@pytest.mark.parametrize("turns", range(TURNS + 1))
def test_a_kill_between_two_turns(host: ManualHost, turns: int) -> None:
    producers = written(host)
    assert commit(host, producers) == 0
    for _ in range(turns):
        turn(host)
    host.restart()
    host.advance(5)
    assert ending(host) == 0
    assert committed(host) == rows(0)
    assert marked(host) == [TASKS, TASKS]
    assert commit(host, producers) == 0, "its answer was lost"
    host.advance(1)
    assert marked(host) == [TASKS, TASKS]


@pytest.mark.parametrize("turns", range(TURNS + 1))
def test_the_same_request_again_between_two_turns(host: ManualHost, turns: int) -> None:
    producers = written(host)
    assert commit(host, producers) == 0
    for _ in range(turns):
        turn(host)
    (shard,) = (each for each in host.node.broker.sinks.loaded_shards() if each.machine.sinks())
    end = shard.end_offset
    assert commit(host, producers) == 0
    assert shard.end_offset == end, "there was nothing to write"
    host.advance(1)
    assert (committed(host), marked(host)) == (rows(0), [TASKS, TASKS])


@pytest.mark.parametrize("turns", range(TURNS + 1))
def test_another_leader_epoch_between_two_turns(host: ManualHost, turns: int) -> None:
    """The orders of the machine before are void; the next one gives its own."""
    assert commit(host, written(host)) == 0
    for _ in range(turns):
        turn(host)
    sinks = host.node.broker.sinks
    (shard,) = (each for each in sinks.loaded_shards() if each.machine.sinks())
    sinks.no_longer_led(host.clock.now(), shard.partition.index)
    host.settle()
    before = marked(host)
    host.advance(1)
    assert marked(host) == before, "nobody is there who would order them"
    sinks.led(host.clock.now(), shard.partition)
    host.advance(5)
    assert (ending(host), committed(host), marked(host)) == (0, rows(0), [TASKS, TASKS])


@pytest.mark.parametrize("turns", range(TURNS + 1))
def test_the_next_batch_begins_between_two_turns(host: ManualHost, turns: int) -> None:
    assert commit(host, written(host)) == 0
    for _ in range(turns):
        turn(host)
    producers = [join(host, 1, task) for task in range(TASKS)]
    for task, producer in enumerate(producers):
        write(host, producer, f"1/{task}")
        if task == TASKS // 2:
            turn(host)
    assert commit(host, producers, 1) == 0
    host.advance(1)
    assert (ending(host), committed(host), marked(host)) == (0, rows(0, 1), [2 * TASKS, 2 * TASKS])


def test_a_stop_between_two_turns(host: ManualHost) -> None:
    assert commit(host, written(host)) == 0
    turn(host)
    host.node.shutdown(host.clock.now())
    host.settle()
    host.advance(5)
    assert host.node.is_stopped
    host.restart()
    host.advance(5)
    assert (ending(host), committed(host), marked(host)) == (0, rows(0), [TASKS, TASKS])


def test_attempts_that_nobody_named_are_aborted_in_turns_too(host: ManualHost) -> None:
    producers = written(host)
    assert commit(host, producers[:2]) == 0
    host.advance(1)
    assert (ending(host), marked(host)) == (0, [TASKS, TASKS])
    assert committed(host) == sorted(2 * ["0/0", "0/1"])


def test_ends_that_are_committed_later_are_reported_together(host: ManualHost) -> None:
    """In a cluster a fetch of a follower commits the markers of many attempts: a report for each would look
    at all attempts of the sink as often.
    """
    producers = written(host)
    first, second = host.partitions("out")
    add_second(host, first)
    assert commit(host, producers) == 0
    for _ in range(TURNS):
        turn(host)
    assert (ending(host), marked(host)) == (TASKS, [TASKS, TASKS])
    (shard,) = (each for each in host.node.broker.sinks.loaded_shards() if each.machine.sinks())
    log = shard.partition.log
    assert log is not None
    before = log.log_end_offset
    second_fetches(host, first, first.opened(host.clock.now()).log_end_offset)
    host.advance(1)
    assert ending(host) == 0
    span = log.read(before, max_bytes=1 << 20, limit_offset=log.log_end_offset, at_least_one=True)
    assert span is not None
    content = span.file.read(span.position, span.size)
    assert [header.record_count for _, header in batches(content)] == [TASKS]
    assert (committed(host), marked(host)) == (rows(0), [TASKS, TASKS])
    assert second.high_watermark == first.high_watermark


def test_a_mistake_in_one_order_costs_no_other(host: ManualHost, monkeypatch: pytest.MonkeyPatch) -> None:
    producers = written(host)
    begin = markers.Markers.begin

    def mistaken(self: Any, now: Any, order: Any, *arguments: Any) -> None:
        if order.producer_id == producers[-1][0]:
            raise ZeroDivisionError
        begin(self, now, order, *arguments)

    monkeypatch.setattr(markers.Markers, "begin", mistaken)
    assert commit(host, producers) == 0
    for _ in range(TURNS - 1):
        turn(host)
    with pytest.raises(ZeroDivisionError):
        turn(host)
    host.advance(1)
    assert (ending(host), marked(host)) == (1, [TASKS - 1, TASKS - 1])
