"""Something that was asked for and is not done yet; the shell waits for it, or tells who listens."""

from collections.abc import Callable

from headrace.client.errors import ClientError


class Pending:
    """done, with an error or without, exactly once."""

    __slots__ = ("_listeners", "error", "is_done", "what")

    def __init__(self, what: str) -> None:
        self.what = what  # completes "timed out while …"
        self.is_done = False
        self.error: ClientError | None = None
        self._listeners: list[Callable[[Pending], object]] = []

    def when_done(self, then: "Callable[[Pending], object]") -> None:
        if self.is_done:
            then(self)
        else:
            self._listeners.append(then)

    def finish(self, error: ClientError | None = None) -> None:
        assert not self.is_done
        self.error = error
        self.is_done = True
        listeners, self._listeners = self._listeners, []
        for then in listeners:
            then(self)
