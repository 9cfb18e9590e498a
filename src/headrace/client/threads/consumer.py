"""The blocking consumer: `headrace.Consumer`.

Connections, heartbeats and prefetching live in a thread of their own (threads/driver.py); what the calls do
is decided in consumer/core.py. Listeners and callbacks run on the thread that calls.
"""

from __future__ import annotations

import logging
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from headrace.base.extras import require
from headrace.client.clock import clock, wall_ms
from headrace.client.cluster import Partition, TopicPartition
from headrace.client.consumer.core import ConsumerCore, P, Place
from headrace.client.consumer.deserializers import Deserializer, Deserializers, as_serializer
from headrace.client.consumer.list_offsets import OffsetAndTimestamp
from headrace.client.consumer.rebalance_callbacks import (
    Committed,
    Functions,
    Listening,
    OnCommit,
    RebalanceListener,
)
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import Closed, ConcurrentUse
from headrace.client.membership.events import CommittedOffset
from headrace.client.membership.subscription import Subscription, subscription_of
from headrace.client.producer.transaction_requests import GroupMembership
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.consumer import consumer_settings
from headrace.client.settings.keys import consumer_keys
from headrace.client.settings.network import network_settings
from headrace.client.steps import Steps
from headrace.client.tables import table_of
from headrace.client.threads.driver import Driver
from headrace.client.threads.steps import take
from headrace.records._messages import Message

if TYPE_CHECKING:
    import re

    import pyarrow

T = TypeVar("T")

log = logging.getLogger("headrace.consumer")


class Consumer:
    """Reads records, as a member of a group (`subscribe`) or from partitions of its own choice (`assign`).

    Settings have Kafka's names, or Python's spelling of them; text alone is `bootstrap.servers`. Times are
    in seconds wherever a method takes them. A deserializer is a function of bytes, a `Serializer`, or a type
    that has a ready one.

    A consumer belongs to one thread at a time; only `wakeup` may be called from another. Heartbeats do not
    depend on it: a group takes its partitions away only when `poll` is not called for max.poll.interval.ms.

    >>> from headrace import Consumer
    >>> with Consumer(servers, group_id="billing", auto_offset_reset="earliest") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     for message in consumer.poll(timeout=10):
    ...         print(message.partition, message.offset, message.key, message.value)
    0 0 b'alice' b'first'
    0 1 b'bob' b'second'
    """

    def __init__(
        self,
        config: str | Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **settings: object,
    ) -> None:
        configuration = Configuration(consumer_keys(), given_settings(config, settings))
        for name in configuration.without_effect():
            log.warning("the setting %s has no effect", name)
        chosen = consumer_settings(configuration)
        session = ConsumerSession(chosen, random.SystemRandom(), wall_ms=wall_ms)
        deserializers = Deserializers(
            as_serializer(key_deserializer, "key_deserializer"),
            as_serializer(value_deserializer, "value_deserializer"),
        )
        self._calls = ConsumerCore(session, chosen, deserializers, clock, log=log)
        self._using = threading.RLock()
        self._driver = Driver(
            session,
            network_settings(configuration),
            name="headrace-consumer",
            after_turn=self._calls.watch,
        )
        self._driver.start()

    # --- reading --------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> list[Message]:
        """The next messages, at most max.poll.records of them; none if none came in that time. Without a
        timeout it waits as long as it takes, or until no broker could be reached for
        headrace.unreachable.timeout.ms, which raises `Unreachable`.

        Listeners, callbacks of commits, and automatic commits of what the last poll gave happen in here.

        >>> consumer.assign({("orders", 0): 0})
        >>> [message.value for message in consumer.poll(10, max_records=1)]
        [b'first']
        """
        return self._take(self._calls.poll(timeout, max_records))

    def poll_arrow(self, timeout: float | None = None) -> pyarrow.Table:
        """All that was fetched, as a table; empty if nothing came in that time. Needs pyarrow.

        Columns are topic, partition, offset, timestamp, timestamp_type, key, value and headers. No Python
        object is made per record, and deserializers are not used.

        >>> consumer.assign({("orders", 0): 0})
        >>> table = consumer.poll_arrow(10)
        >>> table.select(["offset", "value"]).to_pylist()
        [{'offset': 0, 'value': b'first'}, {'offset': 1, 'value': b'second'}]
        """
        require("pyarrow", "poll_arrow()")  # before records are taken that nobody would get
        return table_of(self._take(self._calls.poll_columns(timeout)))

    def __iter__(self) -> Iterator[Message]:
        """Messages one by one, for ever: until the loop is left or the consumer is closed.

        A commit in the loop covers what the loop was given, up to and with the current message.

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
        calls = self._calls
        if not calls.unread or monotonic() >= calls.poll_interval.pulse_at:
            try:
                if calls.unread:
                    self._take(calls.pulse())
                while not calls.unread:
                    calls.unread.extend(self.poll())
            except Closed:
                raise StopIteration from None
        return calls.unread.popleft()

    # --- what is read ---------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        broker_pattern: str | None = None,
        listener: RebalanceListener | None = None,
        on_assign: Listening | None = None,
        on_revoke: Listening | None = None,
        on_lost: Listening | None = None,
    ) -> None:
        """Reads topics together with the other members of the group, instead of what was subscribed before.

        Topics are named, or found by a pattern that whole names must match; with group.protocol=consumer a
        `broker_pattern` (RE2) is matched by the broker. Functions are given the consumer and a list of
        partitions; a `listener` has them as methods. They are called inside `poll`.

        >>> consumer.subscribe(pattern="ord.*", on_assign=lambda consumer, partitions: print(partitions))
        >>> len(consumer.poll(10))
        [TopicPartition(topic='orders', partition=0)]
        2
        """
        if listener is None:
            listener = Functions(on_assign, on_revoke, on_lost)
        subscription = subscription_of(topics, pattern, broker_pattern)
        with self._locked():
            self._calls.subscribe(subscription, listener)

    def unsubscribe(self) -> None:
        """Leaves the group, or drops what was assigned; listeners are told before it returns.

        >>> consumer.subscribe(["orders"], on_revoke=lambda consumer, partitions: print("gone"))
        >>> len(consumer.poll(10))
        2
        >>> consumer.unsubscribe()
        gone
        """
        self._take(self._calls.unsubscribe())

    def assign(self, partitions: Iterable[Place] | Mapping[P, int]) -> None:
        """Reads exactly these partitions; a mapping says from which offsets. Pairs will do as keys.

        >>> consumer.assign([("orders", 0)])
        >>> consumer.assignment
        frozenset({TopicPartition(topic='orders', partition=0)})
        """
        with self._locked():
            self._calls.assign(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        with self._locked():
            return self._calls.assignment

    @property
    def subscription(self) -> Subscription | None:
        """What `subscribe` asked for; None if nothing."""
        with self._locked():
            return self._calls.subscription

    def pause(self, partitions: Iterable[Place]) -> None:
        """Gives no more messages of these until `resume`; the group does not notice.

        >>> consumer.assign({("orders", 0): 0})
        >>> consumer.pause([("orders", 0)])
        >>> consumer.poll(0)
        []
        >>> consumer.resume(consumer.paused)
        >>> len(consumer.poll(10))
        2
        """
        with self._locked():
            self._calls.pause(partitions)

    def resume(self, partitions: Iterable[Place]) -> None:
        """Goes on with these; see `pause`."""
        with self._locked():
            self._calls.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        with self._locked():
            return self._calls.paused

    # --- where it is read -----------------------------------------------------------------------------------

    def seek(self, at: Place, offset: int) -> None:
        """The next message of this partition is the one at this offset, or the first one behind it.

        >>> consumer.assign({("orders", 0): 0})
        >>> consumer.seek(("orders", 0), 1)
        >>> [message.value for message in consumer.poll(10)]
        [b'second']
        """
        with self._locked():
            self._calls.seek(at, offset)

    def seek_to_beginning(self, partitions: Iterable[Place] = ()) -> None:
        """Of these partitions, or of all.

        >>> consumer.assign({("orders", 0): 2})
        >>> consumer.seek_to_beginning()
        >>> consumer.position(("orders", 0))
        0
        """
        with self._locked():
            self._calls.seek_to_beginning(partitions)

    def seek_to_end(self, partitions: Iterable[Place] = ()) -> None:
        """Of these partitions, or of all: only what comes from now on is read.

        >>> consumer.assign({("orders", 0): 0})
        >>> consumer.seek_to_end()
        >>> consumer.position(("orders", 0))
        2
        """
        with self._locked():
            self._calls.seek_to_end(partitions)

    def position(self, at: Place, timeout: float | None = None) -> int:
        """The offset of the next message of a partition that is read.

        >>> consumer.assign({("orders", 0): 1})
        >>> consumer.position(("orders", 0))
        1
        """
        return self._take(self._calls.position(at, timeout))

    def positions(self) -> Committed:
        """How far everything was read: what `commit` commits, and `Producer.send_offsets` takes.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10, max_records=1)
        >>> consumer.positions()
        {TopicPartition(topic='orders', partition=0): CommittedOffset(offset=1, leader_epoch=0, metadata='')}
        """
        with self._locked():
            return self._calls.positions()

    def lag(self, at: Place) -> int | None:
        """How many offsets lie between the position and the end, as far as the last answer of the broker
        tells; None if there was none.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10, max_records=1)
        >>> consumer.lag(("orders", 0))
        1
        """
        with self._locked():
            return self._calls.lag(at)

    def beginning_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets that are still there.

        >>> consumer.beginning_offsets([("orders", 0)])
        {TopicPartition(topic='orders', partition=0): 0}
        """
        return self._take(self._calls.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets behind the last message; with read_committed, of what is committed.

        >>> consumer.end_offsets([("orders", 0)])
        {TopicPartition(topic='orders', partition=0): 2}
        """
        return self._take(self._calls.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, timestamps_ms: Mapping[P, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first message of each partition that is not older than this; None where all are.

        >>> found = consumer.offsets_for_times({("orders", 0): 2000})
        >>> found["orders", 0].offset
        1
        """
        return self._take(self._calls.offsets_for_times(timestamps_ms, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[Partition]:
        """The partitions of a topic, with their leaders and replicas.

        >>> [partition.index for partition in consumer.partitions_for("orders")]
        [0]
        """
        return self._take(self._calls.partitions_for(topic, timeout))

    # --- commits -------------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[P, int | CommittedOffset] | Message | None = None,
        *,
        timeout: float | None = None,
    ) -> Committed:
        """Says to the group how far was read: everything that was given so far, up to and with a message,
        or the offsets of the next messages. Gives what was committed.

        >>> consumer.assign({("orders", 0): 0})
        >>> first, second = consumer.poll(10)
        >>> consumer.commit(first)
        {TopicPartition(topic='orders', partition=0): CommittedOffset(offset=1, leader_epoch=0, metadata='')}
        """
        return self._take(self._calls.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Mapping[P, int | CommittedOffset] | Message | None = None,
        callback: OnCommit | None = None,
    ) -> None:
        """As `commit`, but does not wait: `callback(offsets, error)` is called by a later poll, commit or
        close. Without a callback, an error is logged.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10)
        >>> consumer.commit_async(callback=lambda offsets, error: print(len(offsets), error))
        >>> consumer.close()
        1 None
        """
        with self._locked():
            self._calls.commit_async(offsets, callback)

    def committed(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None where it has nothing.

        >>> at = ("orders", 0)
        >>> committed = consumer.commit({at: 1})
        >>> consumer.committed([at])[at].offset
        1
        """
        return self._take(self._calls.committed(partitions, timeout))

    def group_metadata(self) -> GroupMembership:
        """Who this member was when it last polled, for `Producer.send_offsets`.

        >>> consumer.group_metadata().group_id
        'billing'
        """
        with self._locked():
            return self._calls.group_metadata()

    # --- its life -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Numbers about what happened so far; may be called from any thread.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10)
        >>> consumer.metrics()["records"]
        2
        """
        with self._driver.lock:
            return self._calls.metrics()

    def wakeup(self) -> None:
        """From any thread: the call that waits, or the next one that would, raises `WokenUp`.

        >>> import threading
        >>> from headrace import WokenUp
        >>> consumer.assign({("orders", 0): 2})
        >>> threading.Timer(0.01, consumer.wakeup).start()
        >>> try:
        ...     consumer.poll()
        ... except WokenUp:
        ...     print("good morning")
        good morning
        """
        with self._driver.lock:
            self._calls.wakeup()
            self._driver.lock.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """Commits what is to be committed on its own, tells listeners, and leaves the group, in at most this
        time (30 s). May be called again; a `with` statement does it.

        >>> consumer.close()
        """
        try:
            self._take(self._calls.close(timeout))
        finally:
            if self._calls.is_closed:
                self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        calls = getattr(self, "_calls", None)
        if calls is not None and not calls.is_closed:
            warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return repr(self._calls)

    # --- the thread's rules ---------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """For calls that do not wait."""
        self._enter()
        try:
            with self._driver.lock:
                self._driver.check()
                yield
            self._wake()
        finally:
            self._using.release()

    def _take(self, steps: Steps[T]) -> T:
        """For calls that may."""
        self._enter()
        try:
            return take(steps, self._driver, self, self._wake)
        finally:
            self._wake()
            self._using.release()

    def _enter(self) -> None:
        if not self._using.acquire(blocking=False):
            raise ConcurrentUse("this consumer is being used by another thread at the same time")

    def _wake(self) -> None:
        if self._calls.session.needs_turn:
            self._driver.wake()
