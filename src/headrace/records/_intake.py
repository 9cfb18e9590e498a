# cython: annotation_typing=False
"""The part of `send` that runs for every record: a clock, a lock, a record, and rarely a bell.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headrace.records._accumulator import Accumulator
from headrace.records._codec import Headers
from headrace.records._outgoing import Delivery
from headrace.records.errors import NotTaken


class Lock(Protocol):
    def acquire(self) -> object: ...
    def release(self) -> None: ...


class Intake:
    """Takes records into an accumulator that another thread empties."""

    __slots__ = ("accumulator", "acquire", "release", "wake", "wall_ns")

    def __init__(
        self,
        accumulator: Accumulator,
        lock: Lock,
        *,
        clock: Callable[[], float],
        wall_ns: Callable[[], int],
        wake: Callable[[], object],
    ) -> None:
        self.accumulator = accumulator
        accumulator.clock = clock
        self.guard_with(lock)
        self.wall_ns = wall_ns
        self.wake = wake  # called only when a batch was begun or is full

    def guard_with(self, lock: Lock) -> None:
        """Whoever touches the accumulator holds this lock."""
        self.acquire = lock.acquire  # found once, not for every record
        self.release = lock.release

    def take(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | None:
        """What becomes of the record; None if it is not taken now, for whoever can wait or complain."""
        at = -1
        if partition is not None:
            at = partition
            if at < 0:
                return None  # here it would mean that the choice is ours
        if timestamp_ms is None:
            stamp = self.wall_ns()
            stamp //= 1_000_000
        else:
            stamp = timestamp_ms
        accumulator = self.accumulator
        self.acquire()
        try:
            delivery = accumulator.append(-1.0, topic, key, value, headers, at, stamp)
            if accumulator.has_news:
                accumulator.has_news = False
                self.wake()
            return delivery
        except NotTaken:
            return None
        finally:
            self.release()
