"""Requests that wait: for the high watermark, an fsync, new records, or a committed metadata change.

A parked request is woken by what it waits for (`Waitable`: a partition, a directory's flush, the metadata
log) and by its deadline. Woken, it is asked for its reply; None means: not yet. A `Waiter` that is no request
is woken in the same way, and never has a reply.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.node.connection import Pending
from headrace.node.request import Request

if TYPE_CHECKING:
    from headrace.node.node import Node


class Waitable:
    """Anything parked requests wait for. Order of waking is the order of arrival."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}


class Waiter:
    """Whoever is told, at the end of the call, that something it waits for has moved."""

    __slots__ = ("is_awake", "is_done", "moved", "waits_for")

    def __init__(self) -> None:
        self.waits_for: list[Waitable] = []
        self.is_done = False
        self.is_awake = False  # already on the list of those to be asked
        self.moved: dict[Waitable, None] | None = None  # what it was woken by; None: it does not ask

    def woken(self, now: Now) -> None:
        """Look again at what it waits for."""
        raise AssertionError("each kind of waiter says what it does")

    def wait_for(self, waitable: Waitable) -> None:
        waitable.waiters[self] = None
        self.waits_for.append(waitable)

    def leave(self) -> None:
        """Wait for nothing any more."""
        for waitable in self.waits_for:
            waitable.waiters.pop(self, None)
        self.waits_for.clear()

    def forget(self) -> None:
        """Leave everything it was waiting for, for good."""
        self.is_done = True
        self.leave()


class Parked(Waiter):
    """A request without an answer yet. Subclasses say when it is ready and what the answer is."""

    __slots__ = ("node", "pending", "request")

    def __init__(self, node: "Node", request: Request) -> None:
        super().__init__()
        self.node = node
        self.request = request
        self.pending: Pending | None = None  # its place among the connection's answers

    def deadline(self) -> Instant | None:
        """When it is answered at the latest; None: only by what it waits for."""
        raise AssertionError("each kind of wait says its deadline")

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        """The answer's message, or None while it must wait on. When expired there is always one."""
        raise AssertionError("each kind of wait says its reply")

    def woken(self, now: Now) -> None:
        try:
            reply = self.reply(now, is_expired=False)
            if reply is not None:
                self.node.answer_parked(now, self, reply)
        except Exception:
            self.failed()
            raise

    def expired(self, now: Now) -> None:
        try:
            self.node.answer_parked(now, self, self.reply(now, is_expired=True))
        except Exception:
            self.failed()
            raise

    def failed(self) -> None:
        """A mistake of ours: there will be no answer, and the client must not wait for one."""
        self.node.close(self.request.connection, "internal error")
