"""The blocking consumer: `headrace.Consumer`.

Connections, heartbeats and prefetching run on a thread of their own (threads/driver.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self, TypeVar

from headrace.client.consumer.methods import ConsumerMethods
from headrace.client.errors import Closed, ConcurrentUse
from headrace.client.steps import Steps
from headrace.client.threads.client import BlockingClient
from headrace.records._messages import Message

T = TypeVar("T")


class Consumer(ConsumerMethods, BlockingClient):
    """Reads records, as a member of a group (`subscribe`) or from chosen partitions (`assign`).

    Settings have Kafka's names, or Python's spelling of them; text alone is `bootstrap.servers`. Methods take
    times in seconds. A deserializer is a function of bytes, a `Serializer`, or a type such as `dict`.
    Partitions are `TopicPartition`s or plain (topic, partition) pairs.

    One thread at a time may use a consumer; only `wakeup` and `metrics` may be called from another.
    Heartbeats do not depend on that thread: a group takes partitions away only when `poll` is not called for
    max.poll.interval.ms.

    >>> from headrace import Consumer
    >>> with Consumer(servers, group_id="billing", auto_offset_reset="earliest") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     for message in consumer.poll(timeout=10):
    ...         print(message.partition, message.offset, message.key, message.value)
    0 0 b'alice' b'first'
    0 1 b'bob' b'second'
    """

    def _start(self) -> None:
        self._using = threading.RLock()
        self._driver.start()

    def __iter__(self) -> Self:
        """Messages one by one, until the loop is left or the consumer is closed.

        A commit in the loop covers the messages until the current one, which is included.

        >>> consumer.assign({("orders", 0): 0})
        >>> for message in consumer:
        ...     print(message.value)
        ...     if message.offset == 1:
        ...         break
        b'first'
        b'second'
        """
        return self

    def __next__(self) -> Message:
        core = self._core
        if not core.unread or monotonic() >= core.poll_interval.pulse_at:
            try:
                self._poll_for_iteration()
            except Closed:
                raise StopIteration from None
        return core.unread.popleft()

    # One thread at a time

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._enter()
        try:
            with self._driver.lock:
                self._driver.check()
                yield
            self._wake()
        finally:
            self._using.release()

    def _run(self, steps: Steps[T]) -> T:
        self._enter()
        try:
            return self._driver.run(steps, self, self._wake)
        finally:
            self._wake()
            self._using.release()

    def _enter(self) -> None:
        if not self._using.acquire(blocking=False):
            raise ConcurrentUse("another thread is using this consumer at the same time")

    def _wake(self) -> None:
        if self._core.session.needs_turn:
            self._driver.wake()
