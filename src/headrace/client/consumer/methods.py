"""The public methods of a consumer, for both `headrace.Consumer` and `headrace.aio.Consumer`.

Signatures and docstrings are written here once; `core.py` has the implementation. Listeners and callbacks run
inside `poll`, `unsubscribe`, `commit` and `close`, on the caller's thread or task.
"""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from headrace.base.extras import require
from headrace.client.clock import clock, wall_ms
from headrace.client.cluster import Partition, TopicPartition
from headrace.client.consumer.arrow import table_of
from headrace.client.consumer.core import ConsumerCore, P, PartitionLike
from headrace.client.consumer.offsets import Committed, OffsetAndTimestamp
from headrace.client.consumer.rebalance_callbacks import (
    Functions,
    Listening,
    OnCommit,
    RebalanceListener,
)
from headrace.client.consumer.session import ConsumerSession
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.membership.subscription import Subscription, subscription_of
from headrace.client.serializers import Deserializer, Deserializers, as_serializer
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.consumer import consumer_settings
from headrace.client.settings.keys import consumer_keys
from headrace.client.settings.network import network_settings
from headrace.client.steps import Call, Client, Steps, may_wait
from headrace.records._messages import Message

if TYPE_CHECKING:
    import re

    import pyarrow

T = TypeVar("T")

_log = logging.getLogger("headrace.consumer")


class ConsumerMethods(Client):
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
            _log.warning("the setting %s has no effect", name)
        chosen = consumer_settings(configuration)
        session = ConsumerSession(chosen, random.SystemRandom(), wall_ms=wall_ms)
        deserializers = Deserializers(
            as_serializer(key_deserializer, "key_deserializer"),
            as_serializer(value_deserializer, "value_deserializer"),
        )
        self._core = ConsumerCore(session, chosen, deserializers, clock, log=_log)
        self._open_driver(
            session,
            network_settings(configuration),
            name="headrace-consumer",
            after_turn=self._core.watch,
        )
        self._start()

    # What each form has of its own

    def _start(self) -> None:
        pass

    def _locked(self) -> AbstractContextManager[object]:
        """Around a call that uses the session and does not wait."""
        raise NotImplementedError

    def _polling(self, steps: Steps[T]) -> Steps[T]:
        """Around the steps of a poll."""
        return steps

    def _check_may_close(self) -> None:
        pass

    _ends_poll = False  # whether `close` ends a poll that is under way

    # --- reading --------------------------------------------------------------------------------------------

    @may_wait
    def poll(self, timeout: float | None = None, max_records: int | None = None) -> Steps[list[Message]]:
        """The next messages, at most `max.poll.records`; an empty list if none came within `timeout` seconds.

        Without a timeout it waits until there are messages, or until no broker could be reached for
        headrace.unreachable.timeout.ms, which raises `Unreachable`. Rebalance listeners, callbacks of
        commits, and automatic commits of what the last poll returned run inside this call.

        >>> consumer.assign({("orders", 0): 0})
        >>> [message.value for message in consumer.poll(10, max_records=1)]
        [b'first']
        """
        return self._polling(self._core.poll(timeout, max_records))

    @may_wait
    def poll_arrow(self, timeout: float | None = None) -> Steps[pyarrow.Table]:
        """All records that were fetched, as a pyarrow table; empty if none came within `timeout` seconds.

        Columns are topic, partition, offset, timestamp, timestamp_type, key, value and headers. No Python
        object is made per record, and deserializers are not used. Needs pyarrow.

        >>> consumer.assign({("orders", 0): 0})
        >>> table = consumer.poll_arrow(10)
        >>> table.select(["offset", "value"]).to_pylist()
        [{'offset': 0, 'value': b'first'}, {'offset': 1, 'value': b'second'}]
        """
        require("pyarrow", "poll_arrow()")  # now, before records are taken that nobody would get
        return self._poll_arrow(timeout)

    def _poll_arrow(self, timeout_s: float | None) -> Steps[pyarrow.Table]:
        columns = yield from self._polling(self._core.poll_columns(timeout_s))
        return (yield Call(table_of, (columns,)))

    @may_wait
    def _poll_for_iteration(self) -> Steps[None]:
        """Polls; or, while messages are unread, shows the group that the application is alive."""
        core = self._core
        if core.unread:
            yield from core.pulse()
        while not core.unread:
            core.unread.extend((yield from self._polling(core.poll(None, None))))

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
        """Reads topics as a member of the group; replaces an earlier subscription.

        Topics are named, or found by a regular expression that must match whole names. With
        group.protocol=consumer the broker can match a `broker_pattern` (RE2). `on_assign`, `on_revoke` and
        `on_lost` get the consumer and a list of partitions; a `listener` has them as methods. They are called
        inside `poll`; with `headrace.aio` they may be coroutine functions.

        >>> consumer.subscribe(pattern="ord.*", on_assign=lambda consumer, partitions: print(partitions))
        >>> len(consumer.poll(10))
        [TopicPartition(topic='orders', partition=0)]
        2
        """
        if listener is None:
            listener = Functions(on_assign, on_revoke, on_lost)
        subscription = subscription_of(topics, pattern, broker_pattern)
        with self._locked():
            self._core.subscribe(subscription, listener)

    @may_wait
    def unsubscribe(self) -> Steps[None]:
        """Leaves the group, or drops the assignment; calls the listeners first.

        >>> consumer.subscribe(["orders"], on_revoke=lambda consumer, partitions: print("gone"))
        >>> len(consumer.poll(10))
        2
        >>> consumer.unsubscribe()
        gone
        """
        return self._core.unsubscribe()

    def assign(self, partitions: Iterable[PartitionLike] | Mapping[P, int | CommittedOffset]) -> None:
        """Reads exactly these partitions, without a group; a mapping, such as that of `positions`, says from
        which offsets. For what the leader epoch in it is good, see `seek`.

        >>> consumer.assign([("orders", 0)])
        >>> consumer.assignment
        frozenset({TopicPartition(topic='orders', partition=0)})
        """
        with self._locked():
            self._core.assign(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        with self._locked():
            return self._core.assignment

    @property
    def subscription(self) -> Subscription | None:
        """The arguments of the last `subscribe`; None if there is no subscription."""
        with self._locked():
            return self._core.subscription

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        """Returns no more messages of these partitions until `resume`; they stay assigned.

        >>> consumer.assign({("orders", 0): 0})
        >>> consumer.pause([("orders", 0)])
        >>> consumer.poll(0)
        []
        >>> consumer.resume(consumer.paused)
        >>> len(consumer.poll(10))
        2
        """
        with self._locked():
            self._core.pause(partitions)

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        """Reads these partitions again; see `pause`."""
        with self._locked():
            self._core.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        with self._locked():
            return self._core.paused

    # --- where it is read -----------------------------------------------------------------------------------

    def seek(self, at: PartitionLike, offset: int | CommittedOffset) -> None:
        """Sets the position of a partition: the next message is the one at this offset, or the first one
        after it.

        With a `CommittedOffset`, as `positions` and `committed` return it, the leader epoch of the last
        record that was read comes along. If the log has lost that record since (after an unclean election,
        say), the consumer notices it, also in a new process, as after a failover while it reads: it continues
        where the log differs, or raises `LogTruncation` if auto.offset.reset is none.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10, max_records=1)
        >>> kept = consumer.positions()
        >>> consumer.seek(("orders", 0), 0)
        >>> [message.value for message in consumer.poll(10, max_records=1)]
        [b'first']
        >>> consumer.seek(("orders", 0), kept["orders", 0])
        >>> [message.value for message in consumer.poll(10)]
        [b'second']
        """
        with self._locked():
            self._core.seek(at, offset)

    def seek_to_beginning(self, partitions: Iterable[PartitionLike] | None = None) -> None:
        """Sets the position of these partitions, or of all that are assigned if no argument is given, to
        their first offset.

        >>> consumer.assign({("orders", 0): 2})
        >>> consumer.seek_to_beginning()
        >>> consumer.position(("orders", 0))
        0
        """
        with self._locked():
            self._core.seek_to_beginning(partitions)

    def seek_to_end(self, partitions: Iterable[PartitionLike] | None = None) -> None:
        """Sets the position of these partitions, or of all that are assigned if no argument is given, to
        their end: only new messages are read.

        >>> consumer.assign({("orders", 0): 0})
        >>> consumer.seek_to_end()
        >>> consumer.position(("orders", 0))
        2
        """
        with self._locked():
            self._core.seek_to_end(partitions)

    @may_wait
    def position(self, at: PartitionLike, timeout: float | None = None) -> Steps[int]:
        """The offset of the next message of an assigned partition.

        >>> consumer.assign({("orders", 0): 1})
        >>> consumer.position(("orders", 0))
        1
        """
        return self._core.position(at, timeout)

    def positions(self) -> Committed:
        """The positions of all partitions: what `commit` commits, and what `Producer.send_offsets` takes.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10, max_records=1)
        >>> consumer.positions()
        {TopicPartition(topic='orders', partition=0): CommittedOffset(offset=1, leader_epoch=0, metadata='')}
        """
        with self._locked():
            return self._core.positions()

    def lag(self, at: PartitionLike) -> int | None:
        """How many offsets lie between the position and the end of a partition, according to the broker's
        last response; None before the first one.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10, max_records=1)
        >>> consumer.lag(("orders", 0))
        1
        """
        with self._locked():
            return self._core.lag(at)

    @may_wait
    def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """The first offset of each partition that is not deleted yet.

        >>> consumer.beginning_offsets([("orders", 0)])
        {TopicPartition(topic='orders', partition=0): 0}
        """
        return self._core.beginning_offsets(partitions, timeout)

    @may_wait
    def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """The offset after the last message of each partition; with isolation.level=read_committed, after the
        last one that is committed.

        >>> consumer.end_offsets([("orders", 0)])
        {TopicPartition(topic='orders', partition=0): 2}
        """
        return self._core.end_offsets(partitions, timeout)

    @may_wait
    def offsets_for_times(
        self, timestamps_ms: Mapping[P, int], timeout: float | None = None
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """The first message of each partition with at least this timestamp; None where there is none.

        >>> found = consumer.offsets_for_times({("orders", 0): 2000})
        >>> found["orders", 0].offset
        1
        """
        return self._core.offsets_for_times(timestamps_ms, timeout)

    @may_wait
    def partitions_for(self, topic: str, timeout: float | None = None) -> Steps[list[Partition]]:
        """The partitions of a topic, with their leaders and replicas.

        >>> partitions = consumer.partitions_for("orders")
        >>> [partition.index for partition in partitions]
        [0]
        """
        return self._core.partitions_for(topic, timeout)

    # --- commits -------------------------------------------------------------------------------------------

    @may_wait
    def commit(
        self,
        offsets: Mapping[P, int | CommittedOffset] | Message | None = None,
        *,
        timeout: float | None = None,
    ) -> Steps[Committed]:
        """Commits offsets for the group; returns what was committed.

        By default these are the positions after everything that was returned so far. A message commits the
        offset after it; a mapping has the offsets of the next messages to read.

        >>> consumer.assign({("orders", 0): 0})
        >>> first, second = consumer.poll(10)
        >>> consumer.commit(first)
        {TopicPartition(topic='orders', partition=0): CommittedOffset(offset=1, leader_epoch=0, metadata='')}
        """
        return self._core.commit(offsets, timeout)

    def commit_async(
        self,
        offsets: Mapping[P, int | CommittedOffset] | Message | None = None,
        callback: OnCommit | None = None,
    ) -> None:
        """As `commit`, but does not wait: a later poll, commit or close calls `callback(offsets, error)`.

        Without a callback, an error is logged.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10)
        >>> consumer.commit_async(callback=lambda offsets, error: print(len(offsets), error))
        >>> consumer.close()
        1 None
        """
        with self._locked():
            self._core.commit_async(offsets, callback)

    @may_wait
    def committed(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> Steps[dict[TopicPartition, CommittedOffset | None]]:
        """The offsets that the group has committed; None for partitions where it has not.

        >>> at = ("orders", 0)
        >>> _ = consumer.commit({at: 1})
        >>> committed = consumer.committed([at])
        >>> committed[at].offset
        1
        """
        return self._core.committed(partitions, timeout)

    def group_metadata(self) -> GroupMembership:
        """The consumer's membership of its group at the last poll, for `Producer.send_offsets`.

        >>> consumer.group_metadata().group_id
        'billing'
        """
        with self._locked():
            return self._core.group_metadata()

    # --- its life -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Counters since the consumer was created, and its lag. May be called from any thread.

        >>> consumer.assign({("orders", 0): 0})
        >>> messages = consumer.poll(10)
        >>> consumer.metrics()["records"]
        2
        """
        with self._lock():
            return self._core.metrics()

    def wakeup(self) -> None:
        """Makes the call that waits now, or the next one that would wait, raise `WokenUp`.

        May be called from any thread. A consumer of `headrace.aio` is woken on its event loop; from another
        thread use `loop.call_soon_threadsafe(consumer.wakeup)`.

        >>> from headrace import WokenUp
        >>> consumer.wakeup()
        >>> try:
        ...     consumer.poll()
        ... except WokenUp:
        ...     print("woken up")
        woken up
        """
        with self._lock():
            self._core.wakeup()
            self._driver.notify()

    @may_wait
    def close(self, timeout: float | None = None) -> Steps[None]:
        """Makes the last automatic commit, calls the listeners, and leaves the group, within `timeout`
        seconds (30).

        May be called again; a `with` statement calls it. If its block raised an error, automatic commits
        leave out what the last poll returned. With `headrace.aio`, a poll of another task raises `Closed`,
        and an iteration ends.

        >>> consumer.close()
        """
        self._check_may_close()
        try:
            yield from self._core.close(timeout, ends_poll=self._ends_poll)
        finally:
            if self._core.is_closed:
                yield Call(self._driver.close)

    def _block_ended(self, error: BaseException | None) -> None:
        if error is not None:
            with self._lock():
                self._core.session.discount_last_poll()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.is_closed and self._driver.is_started:
            warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return repr(self._core)
