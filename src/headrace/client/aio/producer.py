"""The producer for asyncio: `await send(…)` puts a record into a batch, the loop delivers it beside."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.client.aio.driver import Driver
from headrace.client.aio.steps import take
from headrace.client.clock import clock, wall_ms
from headrace.client.errors import ClientError, InvalidInput, TransactionMustAbort
from headrace.client.producer._batch import Awaited, Delivery, RecordMetadata
from headrace.client.producer.headers import HeadersGiven, headers_of
from headrace.client.producer.offsets import Group, Offsets, membership_of, offsets_to_commit
from headrace.client.producer.options import Encoding, producer_options
from headrace.client.producer.outbox import Outbox
from headrace.client.producer.rejections import RecordRejected
from headrace.client.settings.network import network_settings
from headrace.client.steps import Steps

if TYPE_CHECKING:
    import pyarrow

    from headrace.client.producer.table_delivery import TableDelivery


class _Waiting:
    """How tasks wait for deliveries: each has a future; if the driver breaks, all of them are told."""

    driver: Driver

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()
        self._watch: asyncio.Task[bool] | None = None

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        raise InvalidInput("a delivery of headrace.aio.Producer is awaited; get() would block the loop")

    def awaiting(self, delivery: Awaited) -> Generator[Any, None, Any]:
        if not delivery.is_done:
            self.driver.check()
            if self._watch is None:
                self._watch = asyncio.ensure_future(self.driver.wait_until(lambda: False))
                self._watch.add_done_callback(self._ended)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._futures.add(future)
            try:
                delivery.when_done(partial(_finish, future))
                yield from future
            finally:
                self._futures.discard(future)
        return delivery.result()

    def _ended(self, watch: asyncio.Task[bool]) -> None:
        """Nothing more will come."""
        error = None if watch.cancelled() else watch.exception()
        for future in self._futures:
            if not future.done():
                future.set_exception(error or ClientError("the event loop is ending"))


def _finish(future: asyncio.Future[None], delivery: Awaited) -> None:
    if not future.done():
        future.set_result(None)


class Producer:
    """Writes records to topics of any Kafka cluster; all tasks of an event loop share one.

    Settings, serializers and partitioners are those of `headrace.Producer`. It begins to work when it is
    first used, on the loop that runs then.

    >>> import headrace.aio
    >>> async with headrace.aio.Producer(servers, linger_ms=5) as producer:
    ...     delivery = await producer.send("orders", b"tea", key=b"customer-7")
    ...     metadata = await delivery
    ...     print(metadata.topic, metadata.partition)
    orders 0
    """

    def __init__(
        self,
        config: str | Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: Encoding | None = None,
        value_serializer: Encoding | None = None,
        **settings: object,
    ) -> None:
        options = producer_options(config, settings, key_serializer, value_serializer)
        waiting = _Waiting()
        outbox = Outbox(options, waiting, random.SystemRandom(), clock=clock, wall_ms=wall_ms)
        self._outbox = outbox
        self._driver = waiting.driver = Driver(
            outbox.sending,
            network_settings(options.configuration),
            name="headrace-producer",
            after_turn=outbox.tell,
        )
        outbox.wake = self._driver.wake
        self._accumulator = outbox.accumulator
        self._append: Callable[..., Delivery] = outbox.accumulator.append
        self._encode_key = options.encode_key
        self._encode_value = options.encode_value
        self._is_paced = outbox.pace.is_limited
        self._is_started = False

    async def start(self) -> None:
        """Begins to work on the running loop; the first call that needs it does so too.

        >>> await producer.start()
        """
        self._start()

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._driver.start()

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _take(self, steps: Steps[Any]) -> Any:
        self._start()
        return await take(steps, self._driver, self, self._driver.wake)

    # Records

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersGiven | None = None,
    ) -> Delivery:
        """Takes a record to be sent soon; awaiting the delivery gives where it came to lie.

        Waits only if the topic is not known yet or `buffer.memory` is used up, for at most `max.block.ms`;
        then it raises `Unreachable`, `TopicUnknown` or `BufferExhausted`. Without a serializer keys and
        values are bytes or text. A value of None is a tombstone.

        >>> delivery = await producer.send("orders", b"tea", key=b"customer-7", headers={"trace": b"1f"})
        >>> (await delivery).offset
        0
        """
        if self._encode_key is not None:
            key = self._encode_key(key)
        if self._encode_value is not None:
            value = self._encode_value(value)
        if self._is_paced:
            await self._take(self._outbox.paced(1, len(key or b"") + len(value or b"")))
        rows = headers_of(headers) if headers else ()
        if partition is None:
            partition = -1
        elif partition < 0:
            raise InvalidInput(f"partition {partition}: partitions are counted from 0")
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        try:
            delivery = self._append(time.monotonic(), topic, key, value, rows, partition, timestamp_ms)
        except RecordRejected:
            steps = self._outbox.sent(topic, key, value, rows, partition, timestamp_ms)
            sent: Delivery = await self._take(steps)
            return sent
        if self._accumulator.should_wake:
            self._accumulator.should_wake = False
            self._driver.wake()
            # a task that only sends would keep the loop from delivering until the buffer is full
            await asyncio.sleep(0)
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersGiven | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is delivered: where it lies, or the error is raised.

        >>> (await producer.send_and_wait("orders", b"tea")).offset
        0
        """
        delivery = await self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await delivery

    async def send_arrow(
        self,
        topic: str,
        table: pyarrow.Table,
        *,
        value: str = "value",
        key: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
        partition: int | str | None = None,
    ) -> TableDelivery:
        """Sends the rows of a table, column by column; see `headrace.Producer.send_arrow`.

        >>> import pyarrow
        >>> table = pyarrow.table({"value": ["tea", "salt"], "customer": ["7", "8"]})
        >>> delivery = await producer.send_arrow("orders", table, key="customer")
        >>> (await delivery).records
        2
        """
        if isinstance(partition, int) and partition < 0:
            raise InvalidInput(f"partition {partition}: partitions are counted from 0")
        steps = self._outbox.table_sent(
            topic, table, value=value, key=key, timestamp=timestamp, headers=headers, partition=partition
        )
        sent: TableDelivery = await self._take(steps)
        return sent

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """The partitions of a topic; `TopicUnknown` after `timeout` seconds, else after `max.block.ms`.

        >>> await producer.partitions_for("orders")
        [0]
        """
        partitions: list[int] = await self._take(self._outbox.partitions_for(topic, timeout))
        return partitions

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent before is delivered, or known not to be; `TimedOut` if it takes
        longer than `timeout` seconds.

        >>> _ = await producer.send("orders", b"tea")
        >>> await producer.flush(timeout=30)
        """
        await self._take(self._outbox.flushed(timeout))

    async def close(self, timeout: float | None = None) -> None:
        """Delivers what was sent, for `timeout` seconds at most, and ends; an open transaction is aborted.

        What is not delivered by then is told so by its delivery. May be called again.

        >>> delivery = await producer.send("orders", b"tea")
        >>> await producer.close(timeout=30)
        >>> delivery.result().offset
        0
        """
        if self._outbox.sending.is_closed:
            return
        try:
            await self._take(self._outbox.ended(timeout))
        finally:
            self._outbox.given_up()
            self._outbox.tell()
            await self._driver.close()

    def metrics(self) -> dict[str, float]:
        """Counts since the producer was made.

        >>> producer.metrics()["records"]
        0
        """
        return self._outbox.metrics()

    # Transactions

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Takes over the `transactional.id`; the first transaction does so itself.

        >>> async with headrace.aio.Producer(servers, transactional_id="biller-1") as biller:
        ...     await biller.init_transactions(timeout=30)
        """
        await self._take(self._outbox.initialized(timeout))

    async def begin_transaction(self) -> None:
        """What is sent from now on counts when it is committed, or never.

        >>> async with headrace.aio.Producer(servers, transactional_id="biller-1") as biller:
        ...     await biller.begin_transaction()
        ...     _ = await biller.send("bills", b"3.20")
        ...     await biller.commit_transaction()
        """
        await self._take(self._outbox.begun(None))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """All records and offsets of the transaction count from now on. `TransactionMustAbort` if one of them
        failed; after `TimedOut` call it again.

        >>> async with headrace.aio.Producer(servers, transactional_id="biller-1") as biller:
        ...     await biller.begin_transaction()
        ...     _ = await biller.send("bills", b"3.20")
        ...     await biller.commit_transaction(timeout=30)
        """
        await self._take(self._outbox.committed(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Nothing of the transaction counts.

        >>> async with headrace.aio.Producer(servers, transactional_id="biller-1") as biller:
        ...     await biller.begin_transaction()
        ...     _ = await biller.send("bills", b"wrong")
        ...     await biller.abort_transaction(timeout=30)
        """
        await self._take(self._outbox.aborted(timeout))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction around a block: committed at its end, aborted if it raises.

        >>> async with headrace.aio.Producer(servers, transactional_id="biller-1") as biller:
        ...     async with biller.transaction():
        ...         _ = await biller.send("orders", b"tea")
        ...         _ = await biller.send("bills", b"3.20")
        """
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            await self._take(self._outbox.rolled_back())
            raise
        try:
            await self.commit_transaction()
        except TransactionMustAbort:
            await self._take(self._outbox.rolled_back())
            raise

    async def send_offsets(self, offsets: Offsets, group: Group, timeout: float | None = None) -> None:
        """Adds a group's offsets to the transaction; see `headrace.Producer.send_offsets`.

        >>> order = await producer.send_and_wait("orders", b"tea")
        >>> async with headrace.aio.Producer(servers, transactional_id="copier-1") as copier:
        ...     async with copier.transaction():
        ...         _ = await copier.send("bills", b"3.20")
        ...         await copier.send_offsets({("orders", 0): order.offset + 1}, "copiers")
        """
        member = membership_of(group)
        await self._take(self._outbox.offsets_sent(offsets_to_commit(offsets), member, timeout))
