# cython: annotation_typing=False
"""The part of `send` that runs for every record: take the lock, append, wake the sender if a batch needs it.

Plain Python that Cython compiles with the C types of the .pxd beside it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Delivery
from headrace.client.producer.rejections import RecordRejected
from headrace.records._codec import Headers


class Lock(Protocol):
    def acquire(self) -> object: ...
    def release(self) -> None: ...


class Appender:
    """Appends records to an accumulator that another thread empties."""

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
        self.use_lock(lock)
        self.wall_ns = wall_ns
        self.wake = wake  # called when a batch was opened or became ready

    def use_lock(self, lock: Lock) -> None:
        """Sets the lock that guards the accumulator."""
        self.acquire = lock.acquire  # looked up once, not for every record
        self.release = lock.release

    def append(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | None:
        """The delivery of the record; None if it was rejected. The caller then waits, or raises why."""
        at = -1
        if partition is not None:
            at = partition
            if at < 0:
                return None  # -1 would let the partitioner choose
        if timestamp_ms is None:
            stamp = self.wall_ns()
            stamp //= 1_000_000
        else:
            stamp = timestamp_ms
        accumulator = self.accumulator
        self.acquire()
        try:
            delivery = accumulator.append(-1.0, topic, key, value, headers, at, stamp)
            if accumulator.should_wake:
                accumulator.should_wake = False
                self.wake()
            return delivery
        except RecordRejected:
            return None
        finally:
            self.release()
