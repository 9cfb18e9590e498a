"""The producer for asyncio: `headrace.aio.Producer`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from functools import partial
from typing import Any, Self

from headrace.client.aio.client import AsyncClient
from headrace.client.aio.driver import Driver
from headrace.client.errors import ClientError, InvalidInput
from headrace.client.producer._appender import Appender
from headrace.client.producer._batch import Awaited, Delivery, RecordMetadata
from headrace.client.producer.arguments import HeadersGiven, headers_of
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.methods import AsyncTransaction, ProducerMethods


class Producer(ProducerMethods, AsyncClient):
    """Writes records to topics of any Kafka cluster. All tasks of an event loop can share one producer.

    Settings, serializers and partitioners are those of `headrace.Producer`. It starts when it is first used,
    on the loop that runs then.

    >>> import headrace.aio
    >>> async with headrace.aio.Producer(servers, linger_ms=5) as producer:
    ...     delivery = await producer.send("orders", b"tea", key=b"customer-7")
    ...     metadata = await delivery
    ...     print(metadata.topic, metadata.partition)
    orders 0
    """

    _transaction_block = AsyncTransaction

    def _new_waiter(self) -> _Waiter:
        return _Waiter()

    def _prepare_to_send(self) -> None:
        self._lets_others_run = False  # before the next record is added
        self._needs_attention = self._needs_preparation  # one question for each record, not two
        appender = Appender(
            self._core.accumulator, None, clock=time.monotonic, wall_ns=time.time_ns, wake=self._driver.wake
        )
        self._appender = appender
        self._append = appender.append

    async def start(self) -> None:
        """Starts on the running loop; the first call that needs it does the same.

        >>> await producer.start()
        """
        self._driver.start_once()

    async def __aenter__(self) -> Self:
        self._driver.start_once()
        return self

    # The signature is that of the blocking `send`. It is written for each form, because this is the path of
    # every record: steps would cost each of them a generator.
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
        """Adds a record to a batch, which is sent soon. Await the returned delivery to know where it was
        written.

        Waits only if the topic's metadata is missing or `buffer.memory` is full, for at most `max.block.ms`;
        then it raises `Unreachable`, `TopicUnknown` or `BufferExhausted`. Without a serializer, keys and
        values are bytes or text. A value of None is a tombstone.

        >>> delivery = await producer.send("orders", b"tea", key=b"customer-7", headers={"trace": b"1f"})
        >>> (await delivery).offset
        0
        """
        if self._needs_attention:
            key, value = await self._prepare(key, value)
        rows = headers_of(headers) if headers else ()
        delivery = self._append(topic, key, value, rows, partition, timestamp_ms)
        if delivery is None:
            return await self._run(self._core.send(topic, key, value, rows, partition, timestamp_ms))
        if self._appender.has_woken:
            self._appender.has_woken = False
            self._lets_others_run = self._needs_attention = True
        return delivery

    async def _prepare(self, key: Any, value: Any) -> tuple[Any, Any]:
        """What comes before a record is added. A send that is cancelled meanwhile has not sent it."""
        if self._lets_others_run:
            # a task that only sends would keep the loop from delivering until the buffer is full
            self._lets_others_run, self._needs_attention = False, self._needs_preparation
            await asyncio.sleep(0)
        if self._needs_preparation:
            key, value = self._serialized(key, value)
            if self._is_rate_limited:
                await self._run(self._core.wait_for_rate(1, len(key or b"") + len(value or b"")))
        return key, value

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
        """Sends a record and waits until it is delivered; returns where it was written, or raises the error.

        >>> (await producer.send_and_wait("orders", b"tea")).offset
        0
        """
        delivery = await self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await delivery

    async def _shut_down(self) -> None:
        self._core.give_up()
        self._core.call_listeners()
        await self._driver.close()


class _Waiter:
    """A task awaits a delivery with a future; if the driver ends, all of these futures fail."""

    driver: Driver
    core: ProducerCore

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()
        self._watch: asyncio.Task[bool] | None = None

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        raise InvalidInput(
            "use await: get() of a delivery of headrace.aio.Producer would block the event loop"
        )

    def awaiting(self, delivery: Awaited) -> Generator[Any, None, Any]:
        if not delivery.is_done:
            self.driver.check()
            if self._watch is None or self._watch.done():
                self._watch = asyncio.ensure_future(self.driver.wait_until(lambda: False))
                self._watch.add_done_callback(self._on_end)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._futures.add(future)
            try:
                delivery.when_done(partial(_finish, future))
                yield from future
            finally:
                self._futures.discard(future)
        return delivery.result()

    def _on_end(self, watch: asyncio.Task[bool]) -> None:
        error = None if watch.cancelled() else watch.exception()
        for future in self._futures:
            if not future.done():
                future.set_exception(error or ClientError("the event loop is ending"))


def _finish(future: asyncio.Future[None], delivery: Awaited) -> None:
    if not future.done():
        future.set_result(None)
