"""Requests that wait: for the high watermark, an fsync, new records, or a committed metadata change.

A parked request is woken by what it waits for (`Waitable`: a partition, a directory's flush, the metadata
log) and by its deadline. Woken, it is asked for its reply; None means: not yet.
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
        self.waiters: dict[Parked, None] = {}


class Parked:
    """A request without an answer yet. Subclasses say when it is ready and what the answer is."""

    __slots__ = ("is_awake", "is_done", "node", "pending", "request", "waits_for")

    def __init__(self, node: "Node", request: Request) -> None:
        self.node = node
        self.request = request
        self.waits_for: list[Waitable] = []
        self.pending: Pending | None = None  # its place among the connection's answers
        self.is_done = False
        self.is_awake = False  # already on the list of those to be asked

    def deadline(self) -> Instant | None:
        """When it is answered at the latest; None: only by what it waits for."""
        raise AssertionError("each kind of wait says its deadline")

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        """The answer's message, or None while it must wait on. When expired there is always one."""
        raise AssertionError("each kind of wait says its reply")

    def wait_for(self, waitable: Waitable) -> None:
        waitable.waiters[self] = None
        self.waits_for.append(waitable)

    def expired(self, now: Now) -> None:
        self.node.answer_parked(now, self, self.reply(now, is_expired=True))

    def forget(self) -> None:
        """Leave everything it was waiting for."""
        self.is_done = True
        for waitable in self.waits_for:
            waitable.waiters.pop(self, None)
        self.waits_for.clear()
