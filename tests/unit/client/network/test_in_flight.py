"""A link without a socket: every ticket is settled once, whatever becomes of the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, ConnectionLost, TimedOut, Unreachable, UnsupportedByBroker
from headrace.client.network.connection import ByVersion, Connection
from headrace.client.network.in_flight import NO_ANSWER, InFlightRequests, Settled
from headrace.client.session import Outgoing
from headrace.protocol.messages.fetch import FetchRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse

START = Instant(100.0)
ADDRESS = Address("b", 9092)


def metadata(ticket: int, *, timeout_s: float = 30.0, expects_answer: bool = True) -> Outgoing:
    return Outgoing(ticket, ADDRESS, MetadataRequest(), timeout_s, None, expects_answer)


class RecordedLink:
    """A link and what it settled."""

    def __init__(self, connection: Connection) -> None:
        self.settled: list[Settled] = []
        self.link = InFlightRequests(ADDRESS, connection, self.settled)

    def bytes_out(self) -> int:
        return sum(len(part) for part in self.link.output if not isinstance(part, int))

    def write(self, count: int | None = None) -> None:
        self.link.left(self.bytes_out() if count is None else count)

    def hear(self, data: bytes) -> None:
        room = self.link.connection.room()
        room[: len(data)] = data
        self.link.received(START, len(data))


@pytest.fixture
def recorded(ready: Callable[..., Connection]) -> RecordedLink:
    return RecordedLink(ready())


def test_requests_wait_until_the_connection_is_ready(script: Any) -> None:
    recorded = RecordedLink(Connection(client_id="test", software_version="1"))
    recorded.link.put(START, metadata(1))
    recorded.link.gather()
    assert recorded.bytes_out() == 0
    recorded.link.begin(Instant(110.0))
    recorded.write()
    recorded.hear(script.versions())
    assert recorded.bytes_out() == 0
    recorded.link.gather()
    assert recorded.bytes_out() > 0
    recorded.write()
    recorded.hear(script.answer(1, MetadataResponse(cluster_id="c"), 13))
    ((ticket, answer),) = recorded.settled
    assert ticket == 1
    assert isinstance(answer, MetadataResponse)
    assert not recorded.link.is_busy


def test_bytes_may_leave_in_any_portions(recorded: RecordedLink) -> None:
    recorded.link.put(START, metadata(1))
    recorded.link.put(START, metadata(2, expects_answer=False))
    recorded.link.put(START, metadata(3, expects_answer=False))
    recorded.link.gather()
    third = recorded.bytes_out() // 3
    for left, expected in ((third, []), (third, [2]), (third - 1, [2]), (1, [2, 3])):
        recorded.write(left)
        assert [ticket for ticket, _ in recorded.settled] == expected
    assert [answer for _, answer in recorded.settled] == [NO_ANSWER, NO_ANSWER]
    assert recorded.link.is_busy  # the first is not answered yet


def test_a_request_that_cannot_be_sent_fails_alone(recorded: RecordedLink) -> None:
    recorded.link.put(
        START, Outgoing(1, ADDRESS, ByVersion(FetchRequest, lambda _: FetchRequest()), 1.0, None)
    )
    recorded.link.put(START, metadata(2))
    recorded.link.gather()
    ((ticket, answer),) = recorded.settled
    assert ticket == 1
    assert isinstance(answer, UnsupportedByBroker)
    assert recorded.bytes_out() > 0


def test_the_end_settles_all_that_is_left(recorded: RecordedLink) -> None:
    recorded.link.put(START, metadata(1))
    recorded.link.put(START, metadata(2, expects_answer=False))
    recorded.link.gather()
    recorded.link.put(START, metadata(3))
    lost = ConnectionLost("gone")
    recorded.link.end(lost)
    assert recorded.settled == [(1, lost), (2, lost), (3, lost)]
    assert not recorded.link.is_busy


class TestTime:
    def test_of_what_waits_for_the_connection(self) -> None:
        recorded = RecordedLink(Connection(client_id="test", software_version="1"))
        assert recorded.link.deadline() == NEVER
        recorded.link.put(START, metadata(1, timeout_s=5.0))
        recorded.link.put(START, metadata(2, timeout_s=3.0))
        assert recorded.link.deadline() == START + 3.0
        recorded.link.check_time(Instant(START + 3.0), None)
        ((ticket, answer),) = recorded.settled
        assert ticket == 2
        assert isinstance(answer, TimedOut)
        assert recorded.link.deadline() == START + 5.0

    def test_the_reason_why_there_is_no_connection_says_more_than_the_clock(self) -> None:
        recorded = RecordedLink(Connection(client_id="test", software_version="1"))
        recorded.link.put(START, metadata(1, timeout_s=3.0))
        refused: ClientError = Unreachable("refused")
        recorded.link.check_time(Instant(START + 3.0), refused)
        assert recorded.settled == [(1, refused)]

    def test_of_what_was_sent(self, recorded: RecordedLink) -> None:
        recorded.link.put(START, metadata(1, timeout_s=3.0))
        recorded.link.gather()
        assert recorded.link.deadline() == START + 3.0
        with pytest.raises(TimedOut, match="Metadata"):
            recorded.link.check_time(Instant(START + 3.0), None)
