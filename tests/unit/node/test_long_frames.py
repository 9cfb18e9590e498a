"""Requests of very many elements are decoded in slices, and are served in their turn all the same."""

import pytest

from harness.desk import Desk, joined
from headrace.base.limits import LONG_FRAME_BYTES, LONG_FRAMES_BYTES_MAX
from headrace.node import long_frames
from headrace.node.connection import Connection
from headrace.node.long_frames import STEPS_PER_TURN
from headrace.node.routes import Request
from headrace.protocol.api import request_codec
from headrace.protocol.decoder import ELEMENTS_PER_STEP
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

MANY = 4_000  # partitions: some 50 kB
TURNS = -(-MANY // (ELEMENTS_PER_STEP * STEPS_PER_TURN))


def look_up(count: int = MANY) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def wake(desk: Desk) -> None:
    """One turn: what is due now, and nothing that the turn itself puts off."""
    at = desk.node.deadline()
    assert at is not None
    desk.clock.advance(max(0.0, at - desk.clock.mono))
    desk.node.wake(desk.clock.now())
    desk.settle()


def test_it_takes_several_turns_and_gives_the_same_answer() -> None:
    desk = Desk()
    desk.create_topic("t")
    connection = desk.connect()
    assert len(request_codec(2, 1).encode(look_up())) > LONG_FRAME_BYTES
    desk.send(connection, look_up(), 1)
    turns = 0
    while connection.is_decoding:
        assert desk.receive(connection) is None
        assert connection.is_full  # nobody reads on meanwhile
        wake(desk)
        turns += 1
    assert turns == TURNS
    desk.advance(10)
    answer = desk.receive(connection)
    assert [told.partition_index for told in answer.topics[0].partitions] == list(range(MANY))
    assert [told.error_code for told in answer.topics[0].partitions] == [0] + [3] * (MANY - 1)


def test_others_are_served_in_between() -> None:
    desk = Desk()
    desk.create_topic("t")
    slow = desk.connect()
    desk.send(slow, look_up(), 1)
    assert desk.ask(metadata(), 4).topics[0].error_code == 0
    assert slow.is_decoding


def test_one_after_the_other() -> None:
    desk = Desk()
    desk.create_topic("t")
    first, second = desk.connect(), desk.connect()
    desk.send(first, look_up(), 1)
    desk.send(second, look_up(), 1)
    for _ in range(TURNS):
        assert second.is_decoding
        assert first.is_decoding
        wake(desk)
    assert second.is_decoding
    assert not first.is_decoding
    for _ in range(TURNS):
        wake(desk)
    assert not second.is_decoding


def send_malformed(desk: Desk) -> Connection:
    """It ends in the middle of an array."""
    connection = desk.connect()
    body = request_codec(2, 1).encode(look_up())
    frame = joined(request_frame(2, 1, 7, "test", [body[: len(body) - 40]]))[4:]
    desk.send_frame(connection, frame)
    return connection


def test_a_malformed_one_costs_its_connection() -> None:
    desk = Desk()
    desk.create_topic("t")
    bad = send_malformed(desk)
    good = desk.connect()
    desk.send(good, look_up(), 1)
    desk.advance(20)
    assert bad.id in desk.closed
    assert len(desk.receive(good).topics[0].partitions) == MANY


def test_who_hangs_up_is_forgotten() -> None:
    desk = Desk()
    desk.create_topic("t")
    gone, good = desk.connect(), desk.connect()
    desk.send(gone, look_up(), 1)
    desk.send(good, look_up(), 1)
    desk.node.disconnected(desk.clock.now(), gone)
    desk.advance(20)
    assert desk.receive(gone) is None
    assert len(desk.receive(good).topics[0].partitions) == MANY


def test_where_no_room_is_left_it_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.create_topic("t")
    size = len(request_codec(2, 1).encode(look_up()))
    monkeypatch.setattr(long_frames, "LONG_FRAMES_BYTES_MAX", 3 * size)
    waiting = [desk.connect() for _ in range(3)]
    for connection in waiting:
        desk.send(connection, look_up(), 1)
    # a frame is a little longer than the body by which it is counted
    assert [connection.is_decoding for connection in waiting] == [True, True, False]
    desk.advance(20)
    assert [len(desk.receive(connection).topics[0].partitions) for connection in waiting] == [MANY] * 3


def test_a_mistake_in_one_handler_stalls_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue was not woken again: every later long request waited for ever."""
    desk = Desk()
    desk.create_topic("t")
    route = desk.node.routes.find("PLAINTEXT", 2, 1)
    assert route is not None
    handle = route.handle
    unlucky, lucky = desk.connect(), desk.connect()

    def failing(request: Request) -> object:
        if request.connection is unlucky:
            raise RuntimeError("a mistake of ours")
        return handle(request)

    monkeypatch.setattr(route, "handle", failing)
    desk.send(unlucky, look_up(), 1)
    desk.send(lucky, look_up(), 1)
    with pytest.raises(RuntimeError):
        desk.advance(1)
    desk.settle()
    assert desk.closed == {unlucky.id: "internal error"}
    desk.advance(10)
    assert desk.receive(lucky) is not None
    assert desk.node.long_frames.has_room(LONG_FRAMES_BYTES_MAX)
