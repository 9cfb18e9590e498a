# cython: annotation_typing=False
"""`send`, as far as it runs for every record: take the lock, append, wake the sender if a batch needs it.

Plain Python that Cython compiles with the C types of the .pxd beside it. `send` of the blocking producer is
here as a whole: as a Python function with six arguments it would add a third to the time of a record.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Delivery
from headrace.client.producer.arguments import HeadersGiven, headers_of
from headrace.client.producer.rejections import RecordRejected
from headrace.records._codec import Headers


class Lock(Protocol):
    def acquire(self) -> object: ...
    def release(self) -> None: ...


class Appender:
    """Appends records to an accumulator that a sender empties, on another thread or on the same loop."""

    __slots__ = ("accumulator", "acquire", "has_woken", "release", "wake", "wall_ns")

    def __init__(
        self,
        accumulator: Accumulator,
        lock: Lock | None,
        *,
        clock: Callable[[], float],
        wall_ns: Callable[[], int],
        wake: Callable[[], object],
    ) -> None:
        """Without a lock, only one thread may use the accumulator."""
        self.accumulator = accumulator
        accumulator.clock = clock
        self.acquire: Callable[[], object] | None = None
        self.release: Callable[[], object] | None = None
        if lock is not None:
            self.use_lock(lock)
        self.wall_ns = wall_ns
        self.wake = wake  # called when a batch was opened or became ready
        self.has_woken = False  # since the caller reset this; on a loop, the sender is to run then

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
        should_wake = False
        if self.acquire is not None:
            self.acquire()
        try:
            delivery = accumulator.append(-1.0, topic, key, value, headers, at, stamp)
            should_wake = accumulator.should_wake
            accumulator.should_wake = False
        except RecordRejected:
            return None
        finally:
            if self.release is not None:
                self.release()
        if should_wake:
            # Without the lock: waking may release the GIL, and the sender would wait for the lock at once.
            self.has_woken = True
            self.wake()
        return delivery


class BlockingSend:
    """`send` of the blocking producer, which inherits it."""

    __slots__ = ("_appender", "_needs_preparation")
    _appender: Appender
    _needs_preparation: bool

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersGiven | None = None,
    ) -> Delivery:
        """Adds a record to a batch, which is sent soon; the returned delivery says whether it was delivered.

        Returns at once, unless the topic's metadata is missing or `buffer.memory` is full: then it waits for
        at most `max.block.ms`, and raises `Unreachable`, `TopicUnknown` or `BufferExhausted`. Without a
        serializer, keys and values are bytes or text. A value of None is a tombstone.

        >>> delivery = producer.send("orders", b"tea", key=b"customer-7", headers={"trace": b"1f"})
        >>> _ = delivery.add_callback(lambda metadata: print(metadata.topic, metadata.partition))
        >>> _ = delivery.add_errback(lambda error: print("not delivered:", error))
        >>> producer.flush()
        orders 0
        """
        if self._needs_preparation:
            key, value = self._prepared(key, value)
        rows = headers_of(headers) if headers else ()
        delivery = self._appender.append(topic, key, value, rows, partition, timestamp_ms)
        if delivery is None:
            return self._send_rejected(topic, key, value, rows, partition, timestamp_ms)
        return delivery

    def _prepared(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Key and value as bytes, when they may be sent: called only if `_needs_preparation`."""
        raise NotImplementedError

    def _send_rejected(self, *record: Any) -> Delivery:
        """Waits until the record is accepted, or raises why it cannot be."""
        raise NotImplementedError
