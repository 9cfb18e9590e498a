"""What the clients for asyncio have in common: a driver on the running loop, and methods that are awaited."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from inspect import iscoroutinefunction
from types import FunctionType, TracebackType
from typing import Any, Self, TypeVar

from headrace.client.aio.driver import Driver
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.steps import Client, Steps, give_methods, waiting_methods

T = TypeVar("T")


class AsyncClient(Client):
    """It may be made before the loop runs; the driver starts on the loop on which a call first waits."""

    _driver: Driver

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        coroutines = [name for name, value in vars(cls).items() if iscoroutinefunction(value)]
        awaited = re.compile(_CALL.format("|".join([*waiting_methods(cls), *coroutines])))

        def text_of(docstring: str) -> str:
            return awaited_examples(docstring, awaited)

        _rewrite_plain_methods(cls, text_of)
        give_methods(cls, _coroutine, text_of)

    def _open_driver(
        self,
        session: Session,
        settings: NetworkSettings,
        *,
        name: str,
        after_turn: Callable[[], object] | None = None,
    ) -> None:
        self._driver = Driver(session, settings, name=name, after_turn=after_turn)

    def _lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    async def _run(self, steps: Steps[T]) -> T:
        """Takes the steps of a call; returns what the call returns."""
        self._driver.start_once()
        return await self._driver.run(steps, self, self._driver.wake)

    async def close(self) -> Any:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block_ended(error)
        await self.close()


def _coroutine(steps: Callable[..., Steps[Any]]) -> FunctionType:
    async def method(self: AsyncClient, /, *args: Any, **kwargs: Any) -> Any:
        return await self._run(steps(self, *args, **kwargs))

    assert isinstance(method, FunctionType)
    return method


# --- the examples of docstrings, which are written for the blocking form ---------------------------------

_CALL = r"\b[a-z]\w*\.(?:{})\("
_EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.) ")
_REPLACED = (
    (re.compile(r"\bheadrace\.(?=Producer|Consumer|Admin)"), "headrace.aio."),
    (re.compile(r"\b(\w+)\.get\(timeout=30\)"), r"(await \1)"),
    (
        re.compile(r"(?<=(?:>>>|\.\.\.) )( *)(?=with (?:headrace|\w+\.transaction)|for \w+ in consumer:)"),
        r"\1async ",
    ),
)


def awaited_examples(docstring: str, awaited: re.Pattern[str]) -> str:
    """The docstring with `await` before the calls that wait, `async with` and `async for`."""
    lines = docstring.split("\n")
    for number, line in enumerate(lines):
        if not _EXAMPLE.match(line):
            continue
        for call in reversed(list(awaited.finditer(line))):
            end = _end_of_call(line, call.end())
            if line[end : end + 1] in (".", "["):
                line = f"{line[: call.start()]}(await {line[call.start() : end]}){line[end:]}"
            else:
                line = f"{line[: call.start()]}await {line[call.start() :]}"
        for pattern, replacement in _REPLACED:
            line = pattern.sub(replacement, line)
        lines[number] = line
    return "\n".join(lines)


def _end_of_call(line: str, at: int) -> int:
    """Behind the bracket that closes the call; the end of the line if it is on another one."""
    depth = 1
    while at < len(line) and depth:
        depth += (line[at] in "([{") - (line[at] in ")]}")
        at += 1
    return at


def _rewrite_plain_methods(kind: type, text_of: Callable[[str], str]) -> None:
    """Methods that do not wait are the same in both forms, but for the examples of their docstrings."""
    for base in kind.__mro__[1:]:
        for name, value in vars(base).items():
            is_shown = isinstance(value, FunctionType) and not name.startswith("_") and value.__doc__
            if is_shown and name not in vars(kind):
                copied = FunctionType(
                    value.__code__, value.__globals__, name, value.__defaults__, value.__closure__
                )
                copied.__kwdefaults__ = value.__kwdefaults__
                copied.__annotations__ = value.__annotations__
                copied.__qualname__ = f"{kind.__qualname__}.{name}"
                copied.__doc__ = text_of(value.__doc__ or "")
                setattr(kind, name, copied)
