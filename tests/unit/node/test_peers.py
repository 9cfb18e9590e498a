"""The port to other nodes: every request ends once, with its answer or with the reason why there is none."""

from __future__ import annotations

from typing import Any

from headrace.base.time import ManualClock
from headrace.node.effects import Effect, Hangup, Send
from headrace.node.peers import Peer, Peers, Unanswered
from headrace.node.ports import Deadlines
from headrace.protocol.api import ApiKey, request_codec, response_codec
from headrace.protocol.framing import decode_request_header, response_frame
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

PEER = Peer(2, "127.0.0.1", 9093)


class ManualHost:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.effects: list[Effect] = []
        self.deadlines = Deadlines()
        self.peers = Peers(1, self.effects, self.deadlines)
        self.results: list[Any] = []

    def send(self, timeout_ms: int = 1000) -> int:
        """The ticket of a Heartbeat to the peer."""
        body = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
        self.peers.send(
            self.clock.now(), PEER, "lane", body, timeout_ms, lambda now, result: self.results.append(result)
        )
        effect = self.effects[-1]
        assert isinstance(effect, Send)
        return effect.ticket

    def answer(self, ticket: int, answer: memoryview | Unanswered) -> None:
        self.peers.answered(self.clock.now(), ticket, answer)


def heartbeat_answer(ticket: int, error_code: int) -> memoryview:
    codec = response_codec(ApiKey.HEARTBEAT, 4)
    parts = response_frame(
        ticket, codec.header_version, codec.encode_parts(HeartbeatResponse(error_code=error_code))
    )
    return memoryview(b"".join(part for part in parts if isinstance(part, bytes)))[4:]


def test_a_request_is_a_frame_whose_correlation_id_is_the_ticket() -> None:
    host = ManualHost()
    ticket = host.send()
    (effect,) = host.effects
    assert isinstance(effect, Send)
    assert (effect.peer, effect.lane) == (PEER, "lane")
    frame = memoryview(effect.frame)[4:]
    key, version, correlation_id, client_id, position = decode_request_header(frame)
    assert (key, version, correlation_id, client_id) == (ApiKey.HEARTBEAT, 4, ticket, "node-1")
    assert request_codec(key, version).decode(frame, position).group_id == "g"
    assert len(frame) == int.from_bytes(effect.frame[:4])


def test_answers_go_to_those_who_asked() -> None:
    host = ManualHost()
    first, second = host.send(), host.send()
    assert first != second
    host.answer(second, heartbeat_answer(second, 27))
    host.answer(first, Unanswered.LOST)
    assert host.results[0].error_code == 27
    assert host.results[1:] == [Unanswered.LOST]
    assert host.deadlines.next() is None


def test_silence_ends_with_the_timeout_and_takes_the_connection_with_it() -> None:
    host = ManualHost()
    ticket = host.send(timeout_ms=500)
    host.clock.advance(0.499)
    host.deadlines.fire(host.clock.now())
    assert not host.results
    host.clock.advance(0.001)
    host.deadlines.fire(host.clock.now())
    assert host.results == [Unanswered.SILENT]
    assert host.effects[-1] == Hangup(2, "lane")
    host.answer(ticket, heartbeat_answer(ticket, 0))  # too late, or the connection's end
    host.answer(ticket, Unanswered.LOST)
    assert host.results == [Unanswered.SILENT]


def test_an_answer_that_cannot_be_decoded_is_lost() -> None:
    host = ManualHost()
    ticket = host.send()
    host.answer(ticket, heartbeat_answer(ticket, 0)[:6])
    assert host.results == [Unanswered.LOST]
    assert host.effects[-1] == Hangup(2, "lane")
