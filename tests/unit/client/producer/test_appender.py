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
    """An appender with a topic of two partitions, its lock, and whether that was held at each wake-up."""
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
        appender=appender,
        append=appender.append,
        accumulator=accumulator,
        lock=lock,
        rung=rung,
        module=modules.appender,
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
    assert parts.rung == [False], "not under the lock, for which the sender would wait as soon as it wakes"
    assert not parts.accumulator.should_wake
    parts.append("t", None, bytes(300), (), 0, None)
    assert parts.rung == [False, False]


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


def test_one_thread_alone_needs_no_lock(parts: Any) -> None:
    rung: list[str] = []
    alone = parts.module.Appender(
        parts.accumulator, None, clock=lambda: 7.0, wall_ns=lambda: 0, wake=lambda: rung.append("")
    )
    assert alone.append("t", None, b"v", (), None, None).timestamp_ms == 0
    assert (alone.has_woken, len(rung), parts.lock.times) == (True, 1, 0)
    alone.has_woken = False
    assert alone.append("t", None, b"v", (), None, None).index == 1
    assert (alone.has_woken, len(rung)) == (False, 1)


def test_send_appends_what_it_is_given_and_leaves_the_rest_to_its_producer(parts: Any) -> None:
    class Sending(parts.module.BlockingSend):
        def __init__(self) -> None:
            self._appender = parts.appender
            self._needs_preparation = False

        def _prepared(self, key: Any, value: Any) -> tuple[Any, Any]:
            return key and key.encode(), repr(value).encode()

        def _send_rejected(self, *record: Any) -> Any:
            return record

    sending = Sending()
    delivery = sending.send("t", b"v", b"k", partition=0, timestamp_ms=5, headers={"h": "x"})
    assert (delivery.batch.queue.partition, delivery.index, delivery.timestamp_ms) == (0, 0, 5)
    assert delivery.batch.count == 1
    assert sending.send("t").batch.queue.partition == 1, "a tombstone without a key"
    assert sending.send("unknown", "v", partition=0, headers={"h": "x"}) == (
        "unknown", None, "v", (("h", b"x"),), 0, None,
    )  # fmt: skip
    sending._needs_preparation = True
    assert sending.send("unknown", 7, "k") == ("unknown", b"k", b"7", (), None, None)
    with pytest.raises(TypeError):
        sending.send("t", b"v", b"k", 0)  # a partition without its name
    with pytest.raises(TypeError):
        sending.send()
    assert not parts.lock.is_held
