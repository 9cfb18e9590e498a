"""Interface between the client's core and its shells: a `Session`, its requests, and the log of a shell.

A session returns the requests to send, and the time at which it must be called again. The driver sends them,
and settles every ticket exactly once, with its answer or with an error. A `RequestQueue` keeps the function
that takes the answer of each ticket.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.base.time import Instant
from headrace.client.cluster import Address, Cluster
from headrace.client.errors import ClientError
from headrace.client.network.connection import Question
from headrace.client.network.reachability import Reachability
from headrace.protocol.notation import Response

Answer = Response | ClientError
Then = Callable[[Instant, Answer], None]

# Lanes: what a broker may hold back shares no connection with what must not wait.
ORDINARY = ""
FETCH = "fetch"  # long polls
REBALANCE = "rebalance"  # JoinGroup and SyncGroup, which wait for the other members


class Outgoing(NamedTuple):
    """One request to send now."""

    ticket: int
    to: Address | None  # None: any broker
    question: Question
    timeout_s: float
    version_max: int | None
    expects_answer: bool = True  # else an empty response is handed back once it is written
    lane: str = ORDINARY


class RequestQueue:
    """Invariant: a ticket is in `_thens` from the moment it is posted until it is answered."""

    def __init__(self) -> None:
        self._next_ticket = 0
        self._posted: list[Outgoing] = []
        self._thens: dict[int, Then] = {}

    def post(
        self,
        to: Address | None,
        question: Question,
        then: Then,
        *,
        timeout_s: float,
        version_max: int | None = None,
        expects_answer: bool = True,
        lane: str = ORDINARY,
    ) -> None:
        self._next_ticket += 1
        self._thens[self._next_ticket] = then
        self._posted.append(
            Outgoing(self._next_ticket, to, question, timeout_s, version_max, expects_answer, lane)
        )

    def take(self) -> list[Outgoing]:
        """What has to be sent; asking again gives only what is new."""
        posted, self._posted = self._posted, []
        return posted

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self._thens.pop(ticket)(now, answer)


class Session(Protocol):
    @property
    def cluster(self) -> Cluster:
        """Where brokers are found; a view that the session keeps fresh."""
        ...

    @property
    def reachability(self) -> Reachability:
        """Where the driver's sockets report whether brokers can be reached."""
        ...

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now; asking again gives only what is new."""
        ...

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None: ...

    def deadline(self) -> Instant:
        """When to ask for requests again at the latest, even if nothing arrives."""
        ...


class Log(Protocol):
    """Where the core writes what people have to know; shells pass a `logging.Logger`."""

    def info(self, message: str, /, *arguments: object) -> None: ...

    def warning(self, message: str, /, *arguments: object) -> None: ...
