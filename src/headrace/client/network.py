"""Connections on the caller's own thread: calls move on only while somebody polls.

For programs that ask one thing after the other, such as the command line; clients that live longer have a
driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headrace.base.time import Instant
from headrace.client.clock import clock as clock
from headrace.client.cluster import Address
from headrace.client.connection import Question
from headrace.client.errors import ClientError
from headrace.client.link import NO_ANSWER
from headrace.client.mailbox import Answer, Outgoing
from headrace.client.network_settings import NetworkSettings
from headrace.client.threads.selecting import Selecting

CONNECT_TIMEOUT_S = 5.0


class Call:
    """One request on its way: `result` or `error` is set when it is done.

    `then` is called in the middle of a poll: it notes what happened and neither raises nor calls.
    """

    __slots__ = ("deadline", "error", "is_done", "result", "then")

    def __init__(self, deadline: Instant, then: Callable[[Call], None] | None) -> None:
        self.deadline = deadline
        self.then = then
        self.result: Any = None
        self.error: ClientError | None = None
        self.is_done = False

    def settle(self, answer: Answer) -> None:
        if isinstance(answer, ClientError):
            self.error = answer
        elif answer is not NO_ANSWER:
            self.result = answer
        self.is_done = True
        if self.then is not None:
            self.then(self)


class Network:
    """All connections of one client."""

    def __init__(self, client_id: str) -> None:
        settings = NetworkSettings(bootstrap=(), client_id=client_id, setup_first_s=CONNECT_TIMEOUT_S)
        self._selecting = Selecting(settings, random.SystemRandom())
        self._next_ticket = 0
        self._calls: dict[int, Call] = {}

    def submit(
        self,
        address: Address,
        request: Question,
        *,
        timeout_s: float,
        lane: str = "",
        version_max: int | None = None,
        expects_answer: bool = True,
        then: Callable[[Call], None] | None = None,
    ) -> Call:
        now = clock()
        call = Call(Instant(now + timeout_s), then)
        self._next_ticket += 1
        self._calls[self._next_ticket] = call
        outgoing = Outgoing(self._next_ticket, address, request, timeout_s, version_max, expects_answer, lane)
        self._selecting.wires.submit(now, outgoing, ())
        self._selecting.wires.flush(now)
        return call

    def poll(self, wake_at: Instant) -> None:
        """Moves bytes; returns after the first activity, at `wake_at`, or when a call runs out of time."""
        self._selecting.poll(wake_at)
        self._settle()

    def _settle(self) -> None:
        for ticket, answer in self._selecting.wires.take_settled():
            self._calls.pop(ticket).settle(answer)

    def run(self, call: Call) -> Any:
        """Polls until the call is done; its result, or its error raised."""
        while not call.is_done:
            self.poll(call.deadline)
        if call.error is not None:
            raise call.error
        return call.result

    def close(self) -> None:
        self._selecting.close()
        self._settle()
