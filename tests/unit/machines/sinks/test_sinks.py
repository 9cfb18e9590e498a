"""The machine of sinks alone: what it refuses, what it orders, and when it forgets."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from harness.refused_first import RefusedSinks
from headrace.base.time import ManualClock
from headrace.machines.coordination import Decision
from headrace.machines.sinks import sinks as sinks_module
from headrace.machines.sinks.sinks import PASSING_KEPT_MS, SinkJoin, SinkJoined, SinkResult, Sinks
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode

TIMEOUT_MS_MAX = 60_000
PLACE = ("t", 0)


class Shard:
    """A machine whose records are replayed at once."""

    def __init__(self) -> None:
        self.machine = RefusedSinks(TIMEOUT_MS_MAX, coordinator_epoch=5)
        self.clock = ManualClock()
        self.began = self.clock.mono
        self._ids = iter(range(100, 200))

    def done(self, decision: Decision) -> Decision:
        for record in decision.records:
            self.machine.replay(record)
        self.machine.check()
        return decision

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


def test_only_open_attempts_of_a_known_sink_write(shard: Shard) -> None:
    joined = shard.join()
    producer = joined.producer_id, joined.producer_epoch
    assert code_in(shard.add(producer, "other")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_in(shard.add((producer[0] + 1, producer[1]))) is ErrorCode.PRODUCER_FENCED
    assert code_in(shard.add((producer[0], producer[1] + 1))) is ErrorCode.PRODUCER_FENCED
    assert code_in(shard.add(producer, verify_only=True)) is ErrorCode.TRANSACTION_ABORTABLE
    assert shard.machine.sinks()[0].attempts[0].partitions == frozenset(), "nothing of it was written"
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
    assert shard.machine.sinks()[0].attempts == ()
    assert shard.commit(0, producers[0]) == Decision(SinkResult()), "the answer was lost"


def test_a_machine_that_was_loaded_orders_what_may_be_missing(shard: Shard) -> None:
    joined = shard.join()
    producer = joined.producer_id, joined.producer_epoch
    shard.add(producer)
    ordered = shard.commit(0, producer)
    shard.join(batch_id=1, timeout_ms=3_000)
    (record,) = [sink.record() for sink in shard.machine.sinks()]
    again = Sinks(TIMEOUT_MS_MAX, coordinator_epoch=6)
    again.replay(record)
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
        (record,) = [sink.record() for sink in shard.machine.sinks()]
        shard.clock.advance(1_000.0)
        again = Sinks(TIMEOUT_MS_MAX, coordinator_epoch=6)
        again.replay(record)
        again.loaded(shard.clock.now())
        deadline = again.deadline()
        assert deadline is not None
        assert round((deadline - shard.clock.mono) * 1_000) == PASSING_KEPT_MS - 1_000_000

    def test_one_that_was_reset_is_not_looked_for(self, shard: Shard) -> None:
        shard.join(is_passing=True)
        shard.done(shard.machine.reset(shard.clock.now(), "app"))
        for sink in shard.machine.sinks():
            for attempt in sink.attempts:
                orders = [
                    one for one in shard.machine._writing.values() if one.producer_id == attempt.producer_id
                ]
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
