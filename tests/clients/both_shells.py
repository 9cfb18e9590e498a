"""Our two consumers with one face: a story that is told once is played by threads and on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import headrace
import headrace.aio
from harness.wait import WAIT_S
from headrace import Message


class OnALoop:
    """headrace.aio.Consumer; its loop runs only while a call waits."""

    def __init__(self, *config: Any, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._consumer = headrace.aio.Consumer(*config, **settings)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._consumer, name)
        if inspect.iscoroutinefunction(found):
            return lambda *given, **named: self._runner.run(found(*given, **named))
        return found

    def __iter__(self) -> OnALoop:
        return self

    def __next__(self) -> Message:
        async def following() -> Message | None:
            return await anext(self._consumer, None)

        message = self._runner.run(following())
        if message is None:
            raise StopIteration
        return message

    def end(self) -> None:
        self.close()
        self._runner.close()


def end(consumer: Any) -> None:
    consumer.end() if isinstance(consumer, OnALoop) else consumer.close()


SHELLS: dict[str, Callable[..., Any]] = {"threads": headrace.Consumer, "aio": OnALoop}


def read(consumer: Any, count: int) -> list[Message]:
    """So many messages, or what came until patience was over."""
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and (left := deadline - time.monotonic()) > 0:
        found += consumer.poll(left)
    return found


def values(messages: list[Message]) -> list[Any]:
    return [message.value for message in messages]
