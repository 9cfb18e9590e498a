"""A call of the application as steps, written once for every shell.

A call that may have to wait is a generator. What it yields is what a shell can do and pure code cannot: wait
until something has happened, or run a function of the application, for which the session must not be locked.
The value of the step comes back from `yield`; an error of the application's function is raised there.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from headrace.base.time import Instant

T = TypeVar("T")


class Wait(NamedTuple):
    """Until `is_over()` or until the clock says so; gives whether it was over."""

    is_over: Callable[[], bool]
    until: Instant


class Call(NamedTuple):
    """`function(*arguments)`; asyncio's shell awaits what it gives, if that can be awaited."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Tell(NamedTuple):
    """As Call, with the consumer itself as first argument: only the shell has it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


Step = Wait | Call | Tell
Steps = Generator[Step, Any, T]
