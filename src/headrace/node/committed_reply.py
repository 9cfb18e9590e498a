"""A reply that is true once the metadata it speaks of is durable."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.base.time import Instant, Now
from headrace.machines.metadata.controller.decision import Decision
from headrace.node.faults import FAULTS, code_of
from headrace.node.parking import Parked
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.node import Node


R = TypeVar("R")


class CommittedReply(Parked):
    """Waits for the metadata log's commit to reach `offset`. `reply` is the message, or makes it then.

    There is no deadline: the change has been made, and the disk either flushes it or ends the node.
    """

    __slots__ = ("_offset", "_reply")

    def __init__(
        self, node: "Node", request: Request, offset: int, reply: Any | Callable[[Now], Any]
    ) -> None:
        super().__init__(node, request)
        self._offset = offset
        self._reply = reply
        self.wait_for(node.metadata)

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        if self.node.metadata.committed_offset < self._offset:
            return None
        return self._reply(now) if callable(self._reply) else self._reply


def when_committed(node: "Node", request: Request, offset: int, reply: R) -> R | CommittedReply:
    """The reply at once when what it speaks of is durable, and otherwise when it is."""
    if node.metadata.committed_offset >= offset:
        return reply
    return CommittedReply(node, request, offset, reply)


class Item(Protocol):
    """What became of one part of a request."""

    error: ErrorCode
    message: str | None


T = TypeVar("T", bound=Item)


def propose(node: "Node", now: Now, decision: Decision[list[T]]) -> int:
    """Append a decision's records; the offset that makes its reply true.

    When they cannot be appended, every item that would have succeeded is told why it did not.
    """
    try:
        return node.metadata.propose(now, decision)
    except FAULTS as fault:
        for item in decision.reply:
            if item.error is ErrorCode.NONE:
                item.error, item.message = code_of(fault), str(fault)
        return node.metadata.end_offset
