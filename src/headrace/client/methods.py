"""Public methods that are written once: they block in `headrace`, and are coroutines in `headrace.aio`.

A method that may have to wait gives a generator of steps (`steps.py`) and has the decorator `may_wait`. It
stands in a class that both forms of a client inherit, such as `ConsumerMethods`. The class of each form (a
subclass of `BlockingClient` or `AsyncClient`) gets a plain function or a coroutine function of the same name,
signature and docstring when it is defined. Type checkers learn the same from the overloads of
`may_wait.__get__`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from inspect import Parameter, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.steps import Steps

if TYPE_CHECKING:
    from headrace.client.aio.client import AsyncClient
    from headrace.client.threads.client import BlockingClient

P = ParamSpec("P")
T = TypeVar("T")


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
