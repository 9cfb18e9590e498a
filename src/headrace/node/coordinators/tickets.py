"""Requests to a coordinator that are answered later: the promises that its machine holds in its hands."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.node.parking import Parked
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.node import Node


class Ticket(Parked):
    """Waits until its coordinator answers, however long a rebalance takes: the machine has the timers."""

    __slots__ = ("_refused",)

    def __init__(self, node: "Node", request: Request, refused: Callable[[ErrorCode], Any]) -> None:
        super().__init__(node, request)
        self._refused = refused  # makes the reply that carries an error

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return None

    def settle(self, now: Now, reply: Any) -> None:
        self.node.answer_parked(now, self, reply)

    def refuse(self, now: Now, code: ErrorCode) -> None:
        if self.pending is not None:  # else its request is being answered right now, by whoever refuses it
            self.node.answer_parked(now, self, self._refused(code))
