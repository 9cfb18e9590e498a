"""What the node knows of one client's connection, and the order in which its answers leave.

A request is answered in the order it came. Most are answered at once and never touch the queue; once one is
parked, those behind it are worked on but their answers wait.
"""

from collections import deque
from typing import TYPE_CHECKING

from headrace.base.limits import (
    HELD_BYTES_PER_CONNECTION_MAX,
    QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX,
    UNANSWERED_PER_CONNECTION_MAX,
)

if TYPE_CHECKING:
    from headrace.node.commit_lane import CommitLane
    from headrace.node.effects import Parts
    from headrace.node.express import ExpressLane
    from headrace.node.waiting import Parked

ANONYMOUS = "User:ANONYMOUS"


class Pending:
    """A place in a connection's queue of answers; `parts` is None until the answer is known."""

    __slots__ = ("connection", "is_done", "parked", "parts", "queued_bytes")

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.parked: Parked | None = None
        self.parts: Parts | None = None
        self.is_done = False
        self.queued_bytes = 0  # of its answer, while that is known and waits for others


class Connection:
    __slots__ = (
        "address",
        "client_software",
        "express",
        "held_bytes",
        "id",
        "is_closed",
        "is_decoding",
        "is_slicing",
        "listener",
        "muted_until",
        "pending",
        "principal",
        "queued_bytes",
    )

    def __init__(self, id: int, *, listener: str, address: str, principal: str = ANONYMOUS) -> None:
        self.id = id
        self.listener = listener  # which listener it came in by: it is told that listener's addresses
        self.address = address
        self.principal = principal
        self.client_software = ("unknown", "unknown")  # as ApiVersions v3 told
        self.express: ExpressLane | CommitLane | None = None  # what its requests have in common
        self.held_bytes = 0  # of its batches that wait in front of their logs
        self.pending: deque[Pending] = deque()
        self.muted_until = 0.0
        self.is_closed = False
        self.is_decoding = False  # a long frame of it: what follows has to wait
        self.is_slicing = False  # a long answer to it is put together: so has what follows
        self.queued_bytes = 0  # of its answers that wait for those of earlier requests

    @property
    def is_full(self) -> bool:
        """Too much was accepted and is not done yet: do not read from it before that has changed."""
        return (
            self.is_decoding
            or self.is_slicing
            or len(self.pending) >= UNANSWERED_PER_CONNECTION_MAX
            or self.held_bytes >= HELD_BYTES_PER_CONNECTION_MAX
            or self.queued_bytes >= QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX
        )
