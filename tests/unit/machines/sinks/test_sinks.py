"""The machine of sinks alone: what it refuses, what it orders, and when it forgets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from random import Random
from typing import Any

import pytest

from harness.refused_first import RefusedSinks
from headrace.base.time import ManualClock
from headrace.machines.coordination import Decision
from headrace.machines.sinks import sink as sink_module
from headrace.machines.sinks import sinks as sinks_module
from headrace.machines.sinks.sinks import PASSING_KEPT_MS, SinkJoin, SinkJoined, SinkResult, Sinks
from headrace.machines.transactions.effects import WriteMarkers
from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import (
    SINK_RECORDS,
    Record,
    changes,
    decode,
    encode,
    encode_batch,
)
from headrace.protocol.coordinator_records.sinks import (
    TRANSACTIONAL_ID_PREFIX,
    SinkAttempt,
    SinkKey,
    SinkPartitions,
    SinkValue,
    SpareProducer,
)
from headrace.protocol.errors import ErrorCode
from headrace.records.builder import build_batch

TIMEOUT_MS_MAX = 60_000
PLACE = ("t", 0)


class Shard:
    """A machine whose records are replayed at once."""

    def __init__(self) -> None:
        self.machine = RefusedSinks(TIMEOUT_MS_MAX, coordinator_epoch=5)
        self.clock = ManualClock()
        self.began = self.clock.mono
        self._ids = iter(range(100, 2_000))
        self.log: list[tuple[bytes, bytes | None]] = []

    def done(self, decision: Decision) -> Decision:
        if decision.records:
            for change in changes(decision.records):
                self.machine.replay(change)
            said = [encode(record) for record in decision.records]
            wall_ms = self.clock.now().wall_ms
            batch = build_batch([(wall_ms, key, value, ()) for key, value in said])
            assert encode_batch(decision.records, wall_ms) == batch, "as the general codec writes it"
            self.log += said
        self.machine.check()
        return decision

    def orders(self, app_id: str = "app") -> list[WriteMarkers]:
        """Those that count."""
        sinks = [sink for sink in self.machine.sinks() if sink.app_id == app_id]
        return [self.machine.order(app_id, each) for sink in sinks for each in sink.ending_attempts]

    def loaded(self, log: Iterable[tuple[bytes, bytes | None]] | None = None) -> Sinks:
        """Another machine, made from the log; of the next leader epoch."""
        again = Sinks(TIMEOUT_MS_MAX, coordinator_epoch=6)
        for key, value in self.log if log is None else log:
            record = decode(SINK_RECORDS, key, value)
            assert record is not None
            again.replay(record)
        return again

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """What the cleaner leaves, once tombstones are gone, too."""
        last = {key: number for number, (key, _) in enumerate(self.log)}
        return [(key, value) for number, (key, value) in enumerate(self.log) if last[key] == number and value]

    def join(self, **changes: Any) -> SinkJoined:
        wanted: dict[str, Any] = {
            "app_id": "app",
            "query_id": "q",
            "run_id": "r1",
            "batch_id": 0,
            "task": 0,
            "attempt": 0,
            "timeout_ms": 1_000,
        }
        request = SinkJoin(**wanted | changes)
        reply = self.done(self.machine.join(self.clock.now(), request, lambda: next(self._ids))).reply
        assert isinstance(reply, SinkJoined)
        return reply

    def add(self, producer: tuple[int, int], app_id: str = "app", *, verify_only: bool = False) -> Decision:
        decision = self.machine.add_partitions(
            self.clock.now(),
            f"{TRANSACTIONAL_ID_PREFIX}{app_id}",
            *producer,
            [PLACE],
            verify_only=verify_only,
            transaction_version=2,
        )
        return self.done(decision)

    def commit(self, batch_id: int, *producers: tuple[int, int], run_id: str = "r1") -> Decision:
        return self.done(self.machine.commit(self.clock.now(), "app", "q", run_id, batch_id, producers))

    @property
    def passed_ms(self) -> int:
        return round((self.clock.mono - self.began) * 1_000)

    def wake(self) -> list[Decision]:
        at = self.machine.deadline()
        assert at is not None
        self.clock.advance(at - self.clock.mono)
        return [self.done(decision) for decision in self.machine.wake(self.clock.now())]


def code_in(decision: Decision) -> ErrorCode:
    (code,) = decision.reply.values() if isinstance(decision.reply, dict) else decision.reply
    return ErrorCode(code)


@pytest.fixture
def shard() -> Shard:
    return Shard()


@pytest.mark.parametrize("missing", [{"app_id": ""}, {"query_id": ""}, {"run_id": ""}, {"batch_id": -1}])
def test_a_sink_a_query_a_run_and_a_batch_are_needed(shard: Shard, missing: dict[str, Any]) -> None:
    joined = shard.join(**missing)
    assert (joined.error, joined.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert joined.message == "a sink, a query, a run and a batch are needed"
    assert shard.machine.sinks() == []


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, ErrorCode.NONE),
        (TIMEOUT_MS_MAX, ErrorCode.NONE),
        (TIMEOUT_MS_MAX + 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_the_timeout_has_limits(shard: Shard, timeout_ms: int, error: ErrorCode) -> None:
    assert shard.join(timeout_ms=timeout_ms).error is error


def test_a_batch_has_only_so_many_attempts(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_module, "ATTEMPTS_MAX", 2)
    assert [shard.join(task=task).error for task in range(3)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert shard.join(task=1).error is ErrorCode.NONE, "it has joined before"


def test_the_next_batch_may_have_as_many_while_the_last_one_ends(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "ATTEMPTS_MAX", 2)
    joined = [shard.join(task=task) for task in range(2)]
    orders = shard.commit(0, *((each.producer_id, each.producer_epoch) for each in joined)).effects
    assert [shard.join(batch_id=1, task=task).error for task in range(3)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert shard.join(batch_id=2).error is ErrorCode.POLICY_VIOLATION, "all four of them are ending"
    shard.done(shard.machine.markers_written(shard.clock.now(), orders[0]))
    assert shard.join(batch_id=2).error is ErrorCode.NONE


def test_an_order_is_the_same_whenever_it_is_asked_for(shard: Shard) -> None:
    joined = [shard.join(task=task) for task in range(3)]
    orders = shard.commit(0, *((each.producer_id, each.producer_epoch) for each in joined)).effects
    assert list(orders) == list(orders) == orders[:3]
    assert all(map(shard.machine.is_writing, orders))
    ended = orders[1]
    shard.done(shard.machine.markers_written(shard.clock.now(), ended))
    assert not shard.machine.is_writing(ended)
    assert not shard.machine.is_writing(orders[1]), "one that is made for an attempt that has ended is void"
    assert [shard.machine.is_writing(order) for order in orders] == [True, False, True]


def test_only_open_attempts_of_a_known_sink_write(shard: Shard) -> None:
    joined = shard.join()
    producer = joined.producer_id, joined.producer_epoch
    assert code_in(shard.add(producer, "other")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_in(shard.add((producer[0] + 1, producer[1]))) is ErrorCode.PRODUCER_FENCED
    assert code_in(shard.add((producer[0], producer[1] + 1))) is ErrorCode.PRODUCER_FENCED
    assert code_in(shard.add(producer, verify_only=True)) is ErrorCode.TRANSACTION_ABORTABLE
    (attempt,) = shard.machine.sinks()[0].attempts.values()
    assert attempt.partitions == frozenset(), "nothing of it was written"
    first, again = shard.add(producer), shard.add(producer)
    assert code_in(first) is code_in(again) is ErrorCode.NONE
    assert (len(first.records), again.records) == (1, []), "the second time nothing is new"


def test_a_write_gives_the_batch_all_of_its_time_again(shard: Shard) -> None:
    joined = shard.join(timeout_ms=1_000)
    shard.clock.advance(0.9)
    shard.add((joined.producer_id, joined.producer_epoch))
    deadline = shard.machine.deadline()
    assert deadline is not None
    assert round(deadline - shard.clock.mono, 3) == 1.0


def test_a_commit_orders_markers_of_every_attempt(shard: Shard) -> None:
    named, other = shard.join(task=0), shard.join(task=0, attempt=1)
    producers = [(one.producer_id, one.producer_epoch) for one in (named, other)]
    for producer in producers:
        shard.add(producer)
    decision = shard.commit(0, producers[0])
    assert decision.reply == SinkResult()
    assert [astuple(order) for order in decision.effects] == [
        ("app", producer[0], producer[1] + 1, 5, is_commit, [PLACE], 2)
        for producer, is_commit in zip(producers, (True, False), strict=True)
    ]
    assert shard.machine.deadline() is None, "nothing is open"
    for order in decision.effects:
        assert shard.machine.is_writing(order)
        assert len(shard.done(shard.machine.markers_written(shard.clock.now(), order)).records) == 1
        assert not shard.machine.is_writing(order)
        late = shard.machine.markers_written(shard.clock.now(), order)
        assert late == Decision(), "an order counts once"
    assert shard.machine.sinks()[0].attempts == {}
    assert shard.commit(0, producers[0]) == Decision(SinkResult()), "the answer was lost"


def test_a_machine_that_was_loaded_orders_what_may_be_missing(shard: Shard) -> None:
    joined = shard.join()
    producer = joined.producer_id, joined.producer_epoch
    shard.add(producer)
    ordered = shard.commit(0, producer)
    shard.join(batch_id=1, timeout_ms=3_000)
    again = shard.loaded()
    assert again.state() == shard.machine.state()
    (order,) = again.loaded(shard.clock.now()).effects
    assert astuple(order) == ("app", producer[0], producer[1] + 1, 6, True, [PLACE], 2)
    assert not again.is_writing(ordered.effects[0]), "it was given by another machine"
    deadline = again.deadline()
    assert deadline is not None
    assert round(deadline - shard.clock.mono, 3) == 3.0
    assert again.abandon() == []


def test_what_nobody_ends_is_aborted_in_time(shard: Shard) -> None:
    joined = shard.join(timeout_ms=2_000)
    shard.add((joined.producer_id, joined.producer_epoch))
    (decision,) = shard.wake()
    assert shard.passed_ms == 2_000
    (order,) = decision.effects
    assert (order.producer_id, order.is_commit) == (joined.producer_id, False)
    assert shard.join(producer_id=joined.producer_id, producer_epoch=joined.producer_epoch).error is (
        ErrorCode.PRODUCER_FENCED
    )


class TestASinkThatWritesOnce:
    def test_it_is_forgotten_after_a_day(self, shard: Shard) -> None:
        joined = shard.join(is_passing=True)
        producer = joined.producer_id, joined.producer_epoch
        (order,) = shard.commit(0, producer).effects
        shard.done(shard.machine.markers_written(shard.clock.now(), order))
        shard.wake()
        assert shard.passed_ms == PASSING_KEPT_MS
        assert shard.machine.sinks() == []
        assert shard.machine.deadline() is None

    def test_not_while_an_attempt_is_being_ended(self, shard: Shard) -> None:
        joined = shard.join(is_passing=True)
        (order,) = shard.commit(0, (joined.producer_id, joined.producer_epoch)).effects
        assert shard.wake() == []
        assert len(shard.machine.sinks()) == 1
        shard.done(shard.machine.markers_written(shard.clock.now(), order))
        shard.wake()
        assert shard.passed_ms == 2 * PASSING_KEPT_MS
        assert shard.machine.sinks() == []

    def test_a_machine_that_was_loaded_counts_from_the_last_record(self, shard: Shard) -> None:
        joined = shard.join(is_passing=True)
        (order,) = shard.commit(0, (joined.producer_id, joined.producer_epoch)).effects
        shard.done(shard.machine.markers_written(shard.clock.now(), order))
        shard.clock.advance(1_000.0)
        again = shard.loaded()
        again.loaded(shard.clock.now())
        deadline = again.deadline()
        assert deadline is not None
        assert round((deadline - shard.clock.mono) * 1_000) == PASSING_KEPT_MS - 1_000_000

    def test_one_that_was_reset_is_not_looked_for(self, shard: Shard) -> None:
        shard.join(is_passing=True)
        shard.done(shard.machine.reset(shard.clock.now(), "app"))
        for sink in shard.machine.sinks():
            for producer_id in list(sink.attempts):
                orders = [one for one in shard.orders() if one.producer_id == producer_id]
                shard.done(shard.machine.markers_written(shard.clock.now(), orders[0]))
        assert shard.machine.sinks() == []
        assert shard.wake() == []


def test_a_run_that_is_over_stays_over(shard: Shard) -> None:
    shard.join()
    assert shard.done(shard.machine.abort(shard.clock.now(), "app", "q", "r1")).reply == SinkResult()
    assert shard.done(shard.machine.abort(shard.clock.now(), "app", "q", "r1")) == Decision(SinkResult())
    assert shard.join().error is ErrorCode.PRODUCER_FENCED
    assert shard.join(run_id="r2").error is ErrorCode.NONE
    assert shard.machine.abort(shard.clock.now(), "nothing", "q", "r1") == Decision(SinkResult())
    unknown = shard.machine.reset(shard.clock.now(), "nothing").reply
    assert unknown == SinkResult(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the sink 'nothing' does not exist")


@pytest.mark.parametrize("seed", range(30))
def test_a_log_says_all_of_a_sink_before_and_after_its_compaction(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens to the sinks: a record for each producer, and one for the sink."""
    monkeypatch.setattr(sink_module, "SPARES_MAX", 2)
    shard, rng = Shard(), Random(seed)
    for _ in range(60):
        app_id = rng.choice(("app", "app", "other"))
        now = shard.clock.now()
        act = rng.choice(("join", "join", "join", "add", "commit", "abort", "reset", "markers", "wake"))
        sink = next((one for one in shard.machine.sinks() if one.app_id == app_id), None)
        if act == "join":
            batch_id = rng.randrange(4) if sink is None else max(sink.batch_id, rng.randrange(4))
            shard.join(app_id=app_id, run_id=f"r{rng.randrange(3)}", batch_id=batch_id, task=rng.randrange(5))
        elif act == "add" and sink is not None and sink.attempts:
            shard.add(rng.choice(list(sink.attempts.values())).producer, app_id)
        elif act == "commit" and sink is not None:
            named = [each.producer for each in sink.open_attempts if rng.random() < 0.8]
            committed = shard.machine.commit(now, app_id, "q", sink.run_id, sink.batch_id, named)
            shard.done(committed)
        elif act == "abort" and sink is not None:
            shard.done(shard.machine.abort(now, app_id, "q", sink.run_id))
        elif act == "reset" and rng.random() < 0.2:
            shard.done(shard.machine.reset(now, app_id))
        elif act == "markers":
            mine = shard.orders(app_id)
            some = rng.sample(mine, rng.randint(0, len(mine)))
            if some:
                shard.done(shard.machine.markers_written(now, *some))
        elif act == "wake" and rng.random() < 0.2 and shard.machine.deadline() is not None:
            shard.wake()
        shard.clock.advance(0.01)
        assert shard.loaded().state() == shard.machine.state()
        assert shard.loaded(shard.compacted()).state() == shard.machine.state()


def test_a_batch_costs_as_much_as_it_has_tasks() -> None:
    def bytes_of(tasks: int) -> int:
        shard = Shard()
        producers = []
        for task in range(tasks):
            joined = shard.join(task=task)
            producers.append((joined.producer_id, joined.producer_epoch))
            shard.add(producers[-1])
        orders = shard.commit(0, *producers).effects
        shard.done(shard.machine.markers_written(shard.clock.now(), *orders))
        assert shard.machine.sinks()[0].attempts == {}
        return sum(len(key) + len(value or b"") for key, value in shard.log)

    assert bytes_of(400) < 2.1 * bytes_of(200)


def test_a_log_of_version_0_is_read_and_written_again_record_by_record(shard: Shard) -> None:
    """In version 0 one record said all of a sink, and each replaced the one before."""
    key = encode(Record(SinkKey(app_id="app"), None))[0]

    def said(attempts: list[SinkAttempt], spares: list[SpareProducer]) -> tuple[bytes, bytes]:
        value = SinkValue(
            query_id="q",
            run_id="r1",
            committed_batch_id=4,
            batch_id=5,
            attempts=attempts,
            spare_producers=spares,
            timeout_ms=1_000,
            updated_ms=7,
        )
        return key, b"\0\0" + codec(SinkValue, 0).encode(value)

    places = [SinkPartitions(topic="t", partitions=[0])]
    open_one = SinkAttempt(producer_id=8, producer_epoch=1, task=2, attempt=3, status=0, topics=places)
    ending = SinkAttempt(producer_id=9, producer_epoch=4, task=1, attempt=0, status=2, topics=places)
    gone = SinkAttempt(producer_id=10, producer_epoch=4, task=1, attempt=0, status=1)
    spare = SpareProducer(producer_id=11, producer_epoch=2)
    shard.log = [said([gone], []), said([open_one, ending], [spare])]
    before = shard.machine = RefusedSinks(TIMEOUT_MS_MAX, coordinator_epoch=5)
    for each in shard.log:
        record = decode(SINK_RECORDS, *each)
        assert record is not None
        before.replay(record)
    (order,) = before.loaded(shard.clock.now()).effects
    assert order.producer_id == 9
    (sink,) = before.sinks()
    assert (sink.committed_batch_id, sink.batch_id, sink.run_id) == (4, 5, "r1")
    assert (list(sink.attempts), sink.spares) == ([8, 9], {11: 2})

    joined = shard.join(batch_id=5, task=7)
    assert (joined.producer_id, joined.producer_epoch) == (11, 2)
    shard.commit(5, (8, 1), (11, 2))
    assert shard.loaded().state() == before.state()
    assert shard.loaded(shard.compacted()).state() == before.state()
    (sink,) = before.sinks()
    assert (sorted(sink.attempts), sink.spares) == ([8, 9, 11], {})
    shard.clock.advance(1.0)
    shard.done(before.markers_written(shard.clock.now(), order))
    (sink,) = before.sinks()
    assert (sorted(sink.attempts), sink.spares) == ([8, 11], {9: 5})
    assert sink.updated_ms == shard.clock.now().wall_ms
