"""Methods that may wait, written once: they block in `headrace`, and are coroutines in `headrace.aio`.

Such a method is a generator of steps. It yields what only a driver can do: wait until something has happened,
or run a function of the application, during which the session must not be locked. The value of the step comes
back from `yield`; an error of the function is raised there. Mostly it waits for a `Pending`, the result of a
call that the session has not finished yet.

The method has the decorator `may_wait`, and stands in a class that both forms of a client inherit, such as
`ConsumerMethods`. The class of each form (a subclass of `BlockingClient` or `AsyncClient`) gets a plain
function or a coroutine function of the same name, signature and docstring when it is defined. Type checkers
learn the same from the overloads of `may_wait.__get__`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from inspect import Parameter, signature
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    overload,
)

from headrace.base.time import Instant
from headrace.client.errors import ClientError
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings

if TYPE_CHECKING:
    from headrace.client.aio.client import AsyncClient
    from headrace.client.threads.client import BlockingClient


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


class Pending(Generic[T]):
    """Done exactly once, with a value or with an error; `Pending[None]` has nothing to tell but that it is
    done.
    """

    __slots__ = ("_listeners", "error", "is_done", "value", "what")

    def __init__(self, what: str) -> None:
        self.what = what  # completes "timed out while …"
        self.is_done = False
        self.value: T | None = None
        self.error: ClientError | None = None
        self._listeners: list[Callable[[Pending[T]], object]] = []

    def when_done(self, then: Callable[[Pending[T]], object]) -> None:
        if self.is_done:
            then(self)
        else:
            self._listeners.append(then)

    def finish(self, value: T | None = None, error: ClientError | None = None) -> None:
        assert not self.is_done
        self.value = value
        self.error = error
        self.is_done = True
        listeners, self._listeners = self._listeners, []
        for then in listeners:
            then(self)

    def result(self) -> T:
        """Of one that is done: its value, or its error raised."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


P = ParamSpec("P")


class may_wait(Generic[P, T]):
    def __init__(self, function: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, client: BlockingClient, kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: object, kind: type) -> Any:
        """Not used by clients: their classes have methods of their own instead."""
        return self if client is None else self.function.__get__(client, kind)


class Client:
    """What the methods need of the form that their client has; `BlockingClient` and `AsyncClient` have it."""

    _driver: Any

    def _open_driver(
        self,
        session: Session,
        settings: NetworkSettings,
        *,
        name: str,
        after_turn: Callable[[], object] | None = None,
    ) -> None:
        """Makes the driver that carries the session's requests."""
        raise NotImplementedError

    def _lock(self) -> AbstractContextManager[object]:
        """Guards the session."""
        raise NotImplementedError

    def _block_ended(self, error: BaseException | None) -> None:
        """Called at the end of a `with` block, before `close`; `error` is what the block raised."""


Form = Callable[[Callable[..., Steps[Any]]], FunctionType]


def give_methods(kind: type, form: Form, text_of: Callable[[str], str] = str) -> None:
    """Gives the class of a client its own form of every method that may wait; `text_of` changes
    docstrings.
    """
    for name, method in waiting_methods(kind).items():
        made = form(method.function)
        made.__name__ = name
        made.__qualname__ = f"{kind.__qualname__}.{name}"
        made.__module__ = kind.__module__
        made.__doc__ = text_of(method.function.__doc__ or "")
        # what help(), editors and `inspect` look at
        made.__signature__ = _without_steps(method.function)  # type: ignore[attr-defined]
        made.__wrapped__ = method.function  # type: ignore[attr-defined]
        setattr(kind, name, made)


def waiting_methods(kind: type) -> dict[str, may_wait[Any, Any]]:
    found: dict[str, may_wait[Any, Any]] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, may_wait):
                found[name] = value
            else:
                found.pop(name, None)  # a form has a method of its own
    return found


def _without_steps(function: Callable[..., Any]) -> Any:
    """For help() and editors: the signature with what the method returns, instead of its steps."""
    plain = signature(function)
    result = plain.return_annotation
    if isinstance(result, str):
        result = result.partition("[")[2].removesuffix("]")
    else:
        result = get_args(result)[-1]
    parameters = list(plain.parameters.values())
    if not parameters or parameters[0].name != "self":
        parameters.insert(0, Parameter("self", Parameter.POSITIONAL_ONLY))
    return plain.replace(parameters=parameters, return_annotation=result)
