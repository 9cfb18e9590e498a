"""The consumer for asyncio: `headrace.aio.Consumer`.

The same calls as the blocking one (threads/consumer.py), decided in the same place (consumer/core.py):
what waits is a coroutine, what does not is a plain method. Listeners and callbacks may be coroutines.
"""

from __future__ import annotations

import asyncio
import logging
import random
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from headrace.base.extras import require
from headrace.client.aio.driver import Driver
from headrace.client.aio.steps import take
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
from headrace.client.errors import Closed, InvalidInput
from headrace.client.membership.events import CommittedOffset
from headrace.client.membership.subscription import Subscription, subscription_of
from headrace.client.producer.transaction_requests import GroupMembership
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.consumer import consumer_settings
from headrace.client.settings.keys import consumer_keys
from headrace.client.settings.network import network_settings
from headrace.client.steps import Steps
from headrace.client.tables import table_of
from headrace.records._messages import Message

if TYPE_CHECKING:
    import re

    import pyarrow

T = TypeVar("T")

log = logging.getLogger("headrace.consumer")


class Consumer:
    """Reads records on a running event loop; everything else is as with `headrace.Consumer`.

    It may be made before the loop runs, and belongs to the loop on which it is first waited for. Other tasks
    may commit or seek while one polls; two tasks that poll at the same time get an error. A cancelled poll
    loses no message.

    >>> import asyncio
    >>> from headrace.aio import Consumer
    >>> async def main():
    ...     async with Consumer(servers, group_id="billing", auto_offset_reset="earliest") as consumer:
    ...         consumer.subscribe(["orders"])
    ...         async for message in consumer:
    ...             print(message.partition, message.offset, message.key, message.value)
    ...             if message.value == b"second":
    ...                 break
    >>> asyncio.run(main())
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
        self._driver = Driver(
            session,
            network_settings(configuration),
            name="headrace-consumer",
            after_turn=self._calls.watch,
        )
        self._is_started = False
        self._poller: asyncio.Task[object] | None = None  # the task whose poll is under way

    # --- reading --------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> list[Message]:
        """The next messages, at most max.poll.records of them; none if none came in that time. Without a
        timeout it waits as long as it takes, or until no broker could be reached for
        headrace.unreachable.timeout.ms, which raises `Unreachable`.

        >>> consumer.assign({("orders", 0): 0})
        >>> [message.value for message in await consumer.poll(10, max_records=1)]
        [b'first']
        """
        return await self._polled(self._calls.poll(timeout, max_records))

    async def poll_arrow(self, timeout: float | None = None) -> pyarrow.Table:
        """All that was fetched, as a table, see `headrace.Consumer.poll_arrow`. Needs pyarrow.

        >>> consumer.assign({("orders", 0): 0})
        >>> (await consumer.poll_arrow(10)).select(["offset", "value"]).to_pylist()
        [{'offset': 0, 'value': b'first'}, {'offset': 1, 'value': b'second'}]
        """
        require("pyarrow", "poll_arrow()")  # before records are taken that nobody would get
        return table_of(await self._polled(self._calls.poll_columns(timeout)))

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages one by one, for ever: until the loop is left or the consumer is closed.

        A commit in the loop covers what the loop was given, up to and with the current message.
        """
        return self

    async def __anext__(self) -> Message:
        calls = self._calls
        if not calls.unread or monotonic() >= calls.poll_interval.pulse_at:
            try:
                if calls.unread:
                    await self._take(calls.pulse())
                while not calls.unread:
                    calls.unread.extend(await self.poll())
            except Closed:
                raise StopAsyncIteration from None
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
        """Reads topics together with the other members of the group, see `headrace.Consumer.subscribe`.

        >>> async def look(consumer, partitions):
        ...     print(await consumer.committed(partitions))
        >>> consumer.subscribe(["orders"], on_assign=look)
        >>> len(await consumer.poll(10))
        {TopicPartition(topic='orders', partition=0): None}
        2
        """
        if listener is None:
            listener = Functions(on_assign, on_revoke, on_lost)
        self._calls.subscribe(subscription_of(topics, pattern, broker_pattern), listener)
        self._wake()

    async def unsubscribe(self) -> None:
        """Leaves the group, or drops what was assigned; listeners are told before it is done."""
        await self._take(self._calls.unsubscribe())

    def assign(self, partitions: Iterable[Place] | Mapping[P, int]) -> None:
        """Reads exactly these partitions; a mapping says from which offsets."""
        self._calls.assign(partitions)
        self._wake()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._calls.assignment

    @property
    def subscription(self) -> Subscription | None:
        """What `subscribe` asked for; None if nothing."""
        return self._calls.subscription

    def pause(self, partitions: Iterable[Place]) -> None:
        """Gives no more messages of these until `resume`; the group does not notice."""
        self._calls.pause(partitions)
        self._wake()

    def resume(self, partitions: Iterable[Place]) -> None:
        """Goes on with these; see `pause`."""
        self._calls.resume(partitions)
        self._wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._calls.paused

    # --- where it is read -----------------------------------------------------------------------------------

    def seek(self, at: Place, offset: int) -> None:
        """The next message of this partition is the one at this offset, or the first one behind it."""
        self._calls.seek(at, offset)
        self._wake()

    def seek_to_beginning(self, partitions: Iterable[Place] = ()) -> None:
        """Of these partitions, or of all."""
        self._calls.seek_to_beginning(partitions)
        self._wake()

    def seek_to_end(self, partitions: Iterable[Place] = ()) -> None:
        """Of these partitions, or of all: only what comes from now on is read."""
        self._calls.seek_to_end(partitions)
        self._wake()

    async def position(self, at: Place, timeout: float | None = None) -> int:
        """The offset of the next message of a partition that is read."""
        return await self._take(self._calls.position(at, timeout))

    def positions(self) -> Committed:
        """How far everything was read: what `commit` commits, and `Producer.send_offsets` takes."""
        return self._calls.positions()

    def lag(self, at: Place) -> int | None:
        """How many offsets lie between the position and the end, as far as the last answer of the broker
        tells; None if there was none.
        """
        return self._calls.lag(at)

    async def beginning_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets that are still there."""
        return await self._take(self._calls.beginning_offsets(partitions, timeout))

    async def end_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets behind the last message; with read_committed, of what is committed."""
        return await self._take(self._calls.end_offsets(partitions, timeout))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[P, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first message of each partition that is not older than this; None where all are."""
        return await self._take(self._calls.offsets_for_times(timestamps_ms, timeout))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[Partition]:
        """The partitions of a topic, with their leaders and replicas."""
        return await self._take(self._calls.partitions_for(topic, timeout))

    # --- commits -------------------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[P, int | CommittedOffset] | Message | None = None,
        *,
        timeout: float | None = None,
    ) -> Committed:
        """Says to the group how far was read, see `headrace.Consumer.commit`.

        >>> consumer.assign({("orders", 0): 0})
        >>> first, second = await consumer.poll(10)
        >>> await consumer.commit(first)
        {TopicPartition(topic='orders', partition=0): CommittedOffset(offset=1, leader_epoch=0, metadata='')}
        """
        return await self._take(self._calls.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Mapping[P, int | CommittedOffset] | Message | None = None,
        callback: OnCommit | None = None,
    ) -> None:
        """As `commit`, but nobody waits: `callback(offsets, error)` is called by a later poll, commit or
        close. Without a callback, an error is logged.
        """
        self._calls.commit_async(offsets, callback)
        self._wake()

    async def committed(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None where it has nothing."""
        return await self._take(self._calls.committed(partitions, timeout))

    def group_metadata(self) -> GroupMembership:
        """Who this member was when it last polled, for `Producer.send_offsets`."""
        return self._calls.group_metadata()

    # --- its life -------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Numbers about what happened so far."""
        return self._calls.metrics()

    def wakeup(self) -> None:
        """The call that waits, or the next one that would, raises `WokenUp`. To be called on the loop; from
        elsewhere, by `loop.call_soon_threadsafe(consumer.wakeup)`.
        """
        self._calls.wakeup()
        self._driver.wake()

    async def close(self, timeout: float | None = None) -> None:
        """Commits what is to be committed on its own, tells listeners, and leaves the group, in at most this
        time (30 s). May be called again; an `async with` statement does it. A poll of another task ends
        with `Closed`, an iteration just ends.
        """
        if asyncio.current_task() is self._poller:
            raise InvalidInput("close was called by a listener or a callback of the poll that it would end")
        try:
            await self._take(self._calls.close(timeout, ends_poll=True))
        finally:
            if self._calls.is_closed:
                await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if getattr(self, "_is_started", False) and not self._calls.is_closed:
            warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return repr(self._calls)

    async def _polled(self, steps: Steps[T]) -> T:
        before, self._poller = self._poller, asyncio.current_task()
        try:
            return await self._take(steps)
        finally:
            self._poller = before

    async def _take(self, steps: Steps[T]) -> T:
        if not self._is_started:
            self._driver.start()
            self._is_started = True
        try:
            return await take(steps, self._driver, self, self._wake)
        finally:
            self._wake()

    def _wake(self) -> None:
        if self._calls.session.needs_turn or self._calls.is_closing:
            self._driver.wake()
