"""Requests of one connection, queued and in flight: tickets in, bytes out; bytes in, answers out.

    held (until the address may be connected to) → opening → open (negotiating, then ready) → ended

Requests queue until the connection is ready. Every ticket that was put in is settled once: by its answer,
by the moment it was written if it wants none, by its deadline, or by the error that ended the connection.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, TimedOut
from headrace.client.network.connection import Connection
from headrace.client.session import Answer, Outgoing
from headrace.protocol.messages.produce import ProduceResponse
from headrace.protocol.parts import Part

# For requests without an answer, once they have left; there is one such, Produce with acks=0.
NO_ANSWER = ProduceResponse()


class Settled(NamedTuple):
    ticket: int
    answer: Answer


class _Call(NamedTuple):
    outgoing: Outgoing
    deadline: Instant


class InFlightRequests:
    def __init__(self, address: Address, connection: Connection, settled: list[Settled]) -> None:
        self.address = address
        self.connection = connection
        # bytes, and behind the last of a request without an answer its ticket: gone is all it can be
        self.output: deque[memoryview | int] = deque()
        self.used_at = Instant(0.0)  # when it last had something to do
        self._settled = settled  # where the answers go; shared by all connections of a client
        self._queued: deque[_Call] = deque()  # until the connection is ready
        self._tickets: dict[int, int] = {}  # by correlation id: sent, and not answered yet

    @property
    def is_busy(self) -> bool:
        return bool(self._tickets or self._queued or self.output)

    def put(self, now: Instant, outgoing: Outgoing) -> None:
        self.used_at = now
        self._queued.append(_Call(outgoing, Instant(now + outgoing.timeout_s)))

    def begin(self, deadline: Instant) -> None:
        """The stream is there."""
        self.connection.begin(deadline)
        self.gather()

    def gather(self) -> None:
        """Moves what the connection wants to say into the output."""
        connection = self.connection
        self._take_output()
        while self._queued and connection.is_ready:
            outgoing, deadline = self._queued.popleft()
            try:
                number = connection.send(
                    outgoing.question,
                    deadline,
                    version_max=outgoing.version_max,
                    expects_answer=outgoing.expects_answer,
                )
            except ClientError as error:  # of this request alone, such as a version that the broker lacks
                self._settle(outgoing.ticket, error)
                continue
            self._take_output()
            if outgoing.expects_answer:
                self._tickets[number] = outgoing.ticket
            else:
                self.output.append(outgoing.ticket)

    def take_leave(self) -> None:
        """Puts into the output what a connection that ends in good order has to say."""
        self.connection.end()
        self._take_output()

    def _take_output(self) -> None:
        self.output += map(_view, self.connection.take_output())

    def left(self, count: int) -> None:
        """Takes bytes that have left out of the output, and settles what has nothing more to wait for."""
        output = self.output
        while output:
            head = output[0]
            if isinstance(head, int):
                self._settle(head, NO_ANSWER)
            elif count < len(head):
                output[0] = head[count:]
                return
            else:
                count -= len(head)
            output.popleft()

    def received(self, now: Instant, count: int) -> None:
        """`count` bytes were put into the connection's room; 0 is the end of the stream."""
        answers = self.connection.received(count)
        if answers:
            self.used_at = now
        for answer in answers:
            self._settle(self._tickets.pop(answer.correlation_id), answer.response)

    def deadline(self) -> Instant:
        queued = min((call.deadline for call in self._queued), default=NEVER)
        return min(queued, self.connection.deadline())

    def check_time(self, now: Instant, why_not_ready: ClientError | None) -> None:
        """Raises when the connection is overdue; requests that waited too long for it fail alone."""
        self.connection.check_time(now)
        for call in [call for call in self._queued if call.deadline <= now]:
            self._queued.remove(call)
            late = TimedOut(f"the connection to {self.address} was not ready in time")
            self._settle(call.outgoing.ticket, why_not_ready or late)

    def end(self, error: ClientError) -> None:
        """The connection is gone, and with it all that was asked."""
        unsent = [part for part in self.output if isinstance(part, int)]
        queued = [call.outgoing.ticket for call in self._queued]
        doomed = [*self._tickets.values(), *unsent, *queued]
        self._tickets.clear()
        self.output.clear()
        self._queued.clear()
        for ticket in doomed:
            self._settle(ticket, error)

    def _settle(self, ticket: int, answer: Answer) -> None:
        self._settled.append(Settled(ticket, answer))


def _view(part: Part) -> memoryview:
    assert isinstance(part, bytes | bytearray | memoryview), "clients send bytes"
    return memoryview(part)
