"""Steps: how a call that may wait is written once, for threads and for asyncio.

Such a call is a generator. It yields what only a driver can do: wait until something has happened, or run a
function of the application, during which the session must not be locked. The value of the step comes back
from `yield`; an error of the function is raised there.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from headrace.base.time import Instant

T = TypeVar("T")


class Wait(NamedTuple):
    """Waits for `is_over()`, at most until `until`; its value is whether it was over."""

    is_over: Callable[[], bool]
    until: Instant


class Call(NamedTuple):
    """Calls `function(*arguments)`; with asyncio the result is awaited, if it is awaitable."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Tell(NamedTuple):
    """As `Call`, with the client itself as first argument: for rebalance listeners."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


Step = Wait | Call | Tell
Steps = Generator[Step, Any, T]
