"""What the blocking clients have in common: a driver with a thread, and methods that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType, TracebackType
from typing import Any, Self, TypeVar

from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.steps import Client, Steps, give_methods
from headrace.client.threads.driver import Driver

T = TypeVar("T")


class BlockingClient(Client):
    _driver: Driver

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        give_methods(cls, _blocking)

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
        return self._driver.lock

    def _run(self, steps: Steps[T]) -> T:
        """Takes the steps of a call; returns what the call returns."""
        return self._driver.run(steps, self, self._driver.wake)

    def close(self) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block_ended(error)
        self.close()


def _blocking(steps: Callable[..., Steps[Any]]) -> FunctionType:
    def method(self: BlockingClient, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(steps(self, *args, **kwargs))

    assert isinstance(method, FunctionType)
    return method
