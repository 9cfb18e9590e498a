"""The consumer for asyncio: `headrace.aio.Consumer`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self, TypeVar

from headrace.client.aio.client import AsyncClient
from headrace.client.consumer.methods import ConsumerMethods
from headrace.client.errors import Closed, InvalidInput
from headrace.client.steps import Steps
from headrace.records._messages import Message

T = TypeVar("T")


class Consumer(ConsumerMethods, AsyncClient):
    """Reads records on a running event loop; settings and methods are those of `headrace.Consumer`.

    Methods that may wait are coroutines; the others are plain. A consumer may be created before the loop
    runs, and belongs to the loop on which it is first awaited. Other tasks may commit or seek while one
    polls; two tasks that poll at the same time get an error. A cancelled poll loses no message. Listeners and
    callbacks may be coroutine functions.

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

    _ends_poll = True
    _poller: asyncio.Task[object] | None = None  # the task whose poll is under way

    def __aiter__(self) -> Self:
        """Messages one by one, until the loop is left or the consumer is closed.

        A commit in the loop covers the messages until the current one, which is included.
        """
        return self

    async def __anext__(self) -> Message:
        core = self._core
        if not core.unread or monotonic() >= core.poll_interval.pulse_at:
            try:
                await self._poll_for_iteration()
            except Closed:
                raise StopAsyncIteration from None
        return core.unread.popleft()

    def _polling(self, steps: Steps[T]) -> Steps[T]:
        before, self._poller = self._poller, asyncio.current_task()
        try:
            return (yield from steps)
        finally:
            self._poller = before

    def _check_may_close(self) -> None:
        if asyncio.current_task() is self._poller:
            raise InvalidInput("a listener or callback cannot close the consumer whose poll called it")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        yield  # nothing else runs on the loop meanwhile
        self._wake()

    async def _run(self, steps: Steps[T]) -> T:
        self._driver.start_once()
        try:
            return await self._driver.run(steps, self, self._wake)
        finally:
            self._wake()

    def _wake(self) -> None:
        if self._core.session.needs_turn or self._core.is_closing:
            self._driver.wake()
