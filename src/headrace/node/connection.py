"""State of one client's connection, and the queue that keeps its answers in order.

Requests are answered in the order in which they arrived. Most are answered at once and never use the queue.
While one is parked, later requests are handled, but their answers wait.
"""

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.base.limits import (
    HELD_BYTES_PER_CONNECTION_MAX,
    QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX,
    UNANSWERED_PER_CONNECTION_MAX,
)

if TYPE_CHECKING:
    from headrace.base.time import Now
    from headrace.node.effects import Parts
    from headrace.node.login import Login
    from headrace.node.quotas import ClientMeters
    from headrace.node.waiting import Parked

ANONYMOUS = "User:ANONYMOUS"
# Of clients inside the process. Nobody can log in as such a one: those from outside are all of type User.
NODE_ITSELF = "Node:itself"


class FastPath(Protocol):
    """What requests of one kind on a connection have in common, and a short cut for the next one."""

    may_queue: bool  # whether it serves a request behind others that wait
    next: "FastPath | None"  # of another kind

    def serve(self, now: "Now", frame: memoryview, /) -> "Parts | None":
        """The answer, or an empty list if it leaves later; None: the request is not known, nothing was
        changed.
        """
        ...


P = TypeVar("P", bound=FastPath)


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
        "fast_path",
        "frame_bytes_max",
        "frames_stay",
        "held_bytes",
        "id",
        "is_closed",
        "is_decoding",
        "is_forwarded",
        "is_own",
        "is_slicing",
        "kept_frames",
        "listener",
        "login",
        "meters",
        "muted_until",
        "peer",
        "pending",
        "principal",
        "queued_bytes",
        "with_token",
    )

    def __init__(
        self, id: int, *, listener: str, address: str, principal: str = ANONYMOUS, is_own: bool = False
    ) -> None:
        self.id = id
        self.listener = listener  # which listener it came in by: it is told that listener's addresses
        self.address = address
        self.principal = principal
        self.is_own = is_own  # of a client inside the process, which needs no login
        self.is_forwarded = False  # a client of another node, whose request that node has sent us
        self.login: Login | None = None  # on a SASL listener
        self.with_token = False  # it has logged in with a delegation token
        self.frame_bytes_max = 2**31 - 1  # less before the login; the process has its own limit, too
        self.client_software = ("unknown", "unknown")  # as ApiVersions v3 told
        self.fast_path: FastPath | None = None  # the first one: at most one of each kind
        self.held_bytes = 0  # of its batches that wait in front of their logs
        # Whether a frame stays where it is while `kept_frames` says that the node uses it. Otherwise no view
        # of it may outlive `handle`.
        self.frames_stay = False
        self.kept_frames = 0
        self.pending: deque[Pending] = deque()
        self.meters: ClientMeters | None = None  # of the client that sent the last request, if it has quotas
        self.muted_until = 0.0
        self.peer: int | None = None  # the broker that opened it, if it said so
        self.is_closed = False
        self.is_decoding = False  # a long frame of it: what follows has to wait
        self.is_slicing = False  # a long answer to it is put together: so has what follows
        self.queued_bytes = 0  # of its answers that wait for those of earlier requests

    @property
    def is_full(self) -> bool:
        """Too many requests or bytes are unanswered: the server must not read from the connection."""
        return (
            self.is_decoding
            or self.is_slicing
            or self.kept_frames > 0
            or len(self.pending) >= UNANSWERED_PER_CONNECTION_MAX
            or self.held_bytes >= HELD_BYTES_PER_CONNECTION_MAX
            or self.queued_bytes >= QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX
        )

    def path_of(self, kind: type[P]) -> P | None:
        """The fast path of this kind."""
        path = self.fast_path
        while path is not None:
            if isinstance(path, kind):
                return path
            path = path.next
        return None

    def put_path(self, path: FastPath) -> None:
        """Replaces the fast path of the same kind."""
        others: list[FastPath] = []
        other = self.fast_path
        while other is not None:
            if type(other) is not type(path):
                others.append(other)
            other = other.next
        self.fast_path = path
        for other in others:
            path.next, path = other, other
        path.next = None
