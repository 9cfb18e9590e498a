"""Requests that a session wants to send, each with the function that takes its answer.

The shell answers every ticket once, with the response or with the ClientError that came instead; `timeout_s`
says how long the answer may take.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.base.time import Instant
from headrace.client.cluster import Address
from headrace.client.errors import ClientError
from headrace.client.network.connection import Question
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
