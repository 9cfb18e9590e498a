"""The hot part of `send`, compiled and interpreted: what it takes, whom it wakes, and that it lets go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.interpreted import interpreted
from harness.producer_simulation import NobodyWaits
from headrace.client.producer import _accumulator, _appender


class Lock:
    """Knows whether it is held."""

    def __init__(self) -> None:
        self.is_held = False
        self.times = 0

    def acquire(self) -> None:
        assert not self.is_held
        self.is_held = True
        self.times += 1

    def release(self) -> None:
        assert self.is_held
        self.is_held = False


@pytest.fixture(params=["as built", "interpreted"])
def parts(request: pytest.FixtureRequest) -> Any:
    """An appender with a topic of two partitions, its lock, and how often it rang."""
    modules: Any = SimpleNamespace(accumulator=_accumulator, appender=_appender)
    if request.param == "interpreted":
        modules = interpreted("_codec", "_batch", "_source_column", "_accumulator", "_appender")
    lock = Lock()
    rung: list[bool] = []
    accumulator = modules.accumulator.Accumulator(
        NobodyWaits(), lambda topic_queues: topic_queues.partitions[1], batch_bytes=400, buffer_bytes=2000
    )
    accumulator.learn("t", [True, True])
    appender = modules.appender.Appender(
        accumulator,
        lock,
        clock=lambda: 7.0,
        wall_ns=lambda: 1_700_000_000_123_999_999,
        wake=lambda: rung.append(lock.is_held),
    )
    return SimpleNamespace(
        appender=appender, append=appender.append, accumulator=accumulator, lock=lock, rung=rung
    )


def test_a_record_is_taken_under_the_lock(parts: Any) -> None:
    delivery = parts.append("t", b"k", "text", (("h", None),), 0, None)
    assert (delivery.batch.queue.partition, delivery.index, delivery.timestamp_ms) == (
        0,
        0,
        1_700_000_000_123,
    )
    assert delivery.batch.created_at == 7.0
    assert parts.append("t", None, b"v", (), None, 5).timestamp_ms == 5
    assert parts.append("t", None, b"v", (), None, 5).batch.queue.partition == 1
    assert (parts.lock.times, parts.lock.is_held) == (3, False)


def test_it_rings_when_a_batch_begins_or_is_full_and_not_for_each_record(parts: Any) -> None:
    for _ in range(12):
        parts.append("t", None, bytes(10), (), 0, None)
    assert parts.rung == [True], "the lock is held, so that the one who wakes finds the record"
    assert not parts.accumulator.should_wake
    parts.append("t", None, bytes(300), (), 0, None)
    assert parts.rung == [True, True]


def test_what_is_not_taken_is_left_to_others(parts: Any) -> None:
    assert parts.append("unknown", None, b"v", (), None, None) is None
    assert parts.append("t", None, b"v", (), 2, None) is None
    assert parts.append("t", None, b"v", (), -1, None) is None
    assert parts.append("t", None, bytes(3000), (), None, None) is None
    assert not parts.lock.is_held
    assert not parts.accumulator.busy


def test_the_lock_is_let_go_whatever_happens(parts: Any) -> None:
    parts.accumulator.learn("odd", [True])
    with pytest.raises(IndexError):  # of the one who chooses partitions
        parts.append("odd", None, b"v", (), None, None)
    assert not parts.lock.is_held


def test_it_can_be_given_another_lock(parts: Any) -> None:
    """After a fork the old one may be held for ever."""
    parts.lock.acquire()
    parts.appender.use_lock(other := Lock())
    assert parts.append("t", None, b"v", (), None, None) is not None
    assert (other.times, parts.lock.times) == (1, 1)
