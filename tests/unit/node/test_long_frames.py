"""Requests of very many elements are decoded in slices, and are served in their turn all the same."""

import pytest

from harness.node_records import MANY, look_up
from headrace.base.limits import LONG_FRAME_BYTES, LONG_FRAMES_BYTES_MAX
from headrace.node import long_frames
from headrace.node.connection import Connection
from headrace.node.long_frames import STEPS_PER_TURN
from headrace.node.routes import Request
from headrace.protocol.api import request_codec
from headrace.protocol.decoder import ELEMENTS_PER_STEP
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.simulator.frames import joined
from headrace.simulator.manual_host import ManualHost

TURNS = -(-MANY // (ELEMENTS_PER_STEP * STEPS_PER_TURN))


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def wake(host: ManualHost) -> None:
    """One turn: what is due now, and nothing that the turn itself puts off."""
    at = host.node.deadline()
    assert at is not None
    host.clock.advance(max(0.0, at - host.clock.mono))
    host.node.wake(host.clock.now())
    host.settle()


def test_it_takes_several_turns_and_gives_the_same_answer() -> None:
    host = ManualHost()
    host.create_topic("t")
    connection = host.connect()
    assert len(request_codec(2, 1).encode(look_up())) > LONG_FRAME_BYTES
    host.send(connection, look_up(), 1)
    turns = 0
    while connection.is_decoding:
        assert host.receive(connection) is None
        assert connection.is_full  # nobody reads on meanwhile
        wake(host)
        turns += 1
    assert turns == TURNS
    host.advance(10)
    answer = host.receive(connection)
    assert [told.partition_index for told in answer.topics[0].partitions] == list(range(MANY))
    assert [told.error_code for told in answer.topics[0].partitions] == [0] + [3] * (MANY - 1)


def test_others_are_served_in_between() -> None:
    host = ManualHost()
    host.create_topic("t")
    slow = host.connect()
    host.send(slow, look_up(), 1)
    assert host.ask(metadata(), 4).topics[0].error_code == 0
    assert slow.is_decoding


def test_one_after_the_other() -> None:
    host = ManualHost()
    host.create_topic("t")
    first, second = host.connect(), host.connect()
    host.send(first, look_up(), 1)
    host.send(second, look_up(), 1)
    for _ in range(TURNS):
        assert second.is_decoding
        assert first.is_decoding
        wake(host)
    assert second.is_decoding
    assert not first.is_decoding
    for _ in range(TURNS):
        wake(host)
    assert not second.is_decoding


def send_malformed(host: ManualHost) -> Connection:
    """It ends in the middle of an array."""
    connection = host.connect()
    body = request_codec(2, 1).encode(look_up())
    frame = joined(request_frame(2, 1, 7, "test", [body[: len(body) - 40]]))[4:]
    host.send_frame(connection, frame)
    return connection


def test_a_malformed_one_costs_its_connection() -> None:
    host = ManualHost()
    host.create_topic("t")
    bad = send_malformed(host)
    good = host.connect()
    host.send(good, look_up(), 1)
    host.advance(20)
    assert bad.id in host.closed
    assert len(host.receive(good).topics[0].partitions) == MANY


def test_who_hangs_up_is_forgotten() -> None:
    host = ManualHost()
    host.create_topic("t")
    gone, good = host.connect(), host.connect()
    host.send(gone, look_up(), 1)
    host.send(good, look_up(), 1)
    host.node.disconnected(host.clock.now(), gone)
    host.advance(20)
    assert host.receive(gone) is None
    assert len(host.receive(good).topics[0].partitions) == MANY


def test_where_no_room_is_left_it_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ManualHost()
    host.create_topic("t")
    size = len(request_codec(2, 1).encode(look_up()))
    monkeypatch.setattr(long_frames, "LONG_FRAMES_BYTES_MAX", 3 * size)
    waiting = [host.connect() for _ in range(3)]
    for connection in waiting:
        host.send(connection, look_up(), 1)
    # a frame is a little longer than the body by which it is counted
    assert [connection.is_decoding for connection in waiting] == [True, True, False]
    host.advance(20)
    assert [len(host.receive(connection).topics[0].partitions) for connection in waiting] == [MANY] * 3


def test_a_mistake_in_one_handler_stalls_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue was not woken again: every later long request waited for ever."""
    host = ManualHost()
    host.create_topic("t")
    route = host.node.routes.find("PLAINTEXT", 2, 1)
    assert route is not None
    handle = route.handle
    unlucky, lucky = host.connect(), host.connect()

    def failing(request: Request) -> object:
        if request.connection is unlucky:
            raise RuntimeError("a mistake of ours")
        return handle(request)

    monkeypatch.setattr(route, "handle", failing)
    host.send(unlucky, look_up(), 1)
    host.send(lucky, look_up(), 1)
    with pytest.raises(RuntimeError):
        host.advance(1)
    host.settle()
    assert host.closed == {unlucky.id: "internal error"}
    host.advance(10)
    assert host.receive(lucky) is not None
    assert host.node.long_frames.has_room(LONG_FRAMES_BYTES_MAX)
