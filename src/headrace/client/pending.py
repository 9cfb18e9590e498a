"""Result of a call that is not finished yet; the shell waits for it, or is called when it is done."""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from headrace.client.errors import ClientError

T = TypeVar("T")


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

    def when_done(self, then: "Callable[[Pending[T]], object]") -> None:
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
