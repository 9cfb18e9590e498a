"""The commits' express lane answers and writes what the ordinary way would have, or does not answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.authorizers import Nobody
from harness.desk import Desk, joined
from headrace.node.commit_lane import CommitLane, CommitLanes
from headrace.node.connection import Connection
from headrace.protocol.api import request_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def desk_with_group() -> Desk:
    desk = Desk(SETTINGS)
    desk.create_topic("t", 3)
    desk.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    return desk


def member_of(desk: Desk) -> str:
    """The only member of the group, in generation 1, with a session of ten seconds."""
    connection = desk.connect()
    wish = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    wish.member_id = desk.ask(wish, 9, connection).member_id
    desk.send(connection, wish, 9)
    desk.advance(0)
    assert desk.receive(connection).generation_id == 1
    desk.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=wish.member_id), 3)
    return wish.member_id


def commit(
    desk: Desk,
    offset: int,
    version: int,
    *,
    partition: int = 0,
    epoch: int = 3,
    metadata: str | None = "m",
    member: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    topic_id = desk.node.broker.partitions.of_name("t")[0].topic_id if version >= 10 else bytes(16)
    committed = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch if version >= 6 else -1,
        committed_metadata=metadata,
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[committed])],
    )


def error_of(desk: Desk, connection: Connection, request: OffsetCommitRequest, version: int = 9) -> int:
    return desk.ask(request, version, connection).topics[0].partitions[0].error_code


def frame_of(request: OffsetCommitRequest, version: int, correlation: int) -> bytes:
    body = request_codec(8, version).encode(request)
    return joined(request_frame(8, version, correlation, "client", [body]))[4:]


def answer(desk: Desk, connection: Connection, frame: bytes) -> bytes | None:
    parts = desk.node.handle(desk.clock.now(), connection, memoryview(bytearray(frame)))
    return joined(parts) if parts is not None else None


def log_of(desk: Desk) -> bytes:
    log = desk.node.broker.partitions.of_name("__consumer_offsets")[0].log
    assert log is not None
    span = log.read(0, max_bytes=1 << 20, limit_offset=log.log_end_offset, at_least_one=True)
    assert span is not None
    return bytes(span.read())


def state_of(desk: Desk) -> object:
    return desk.node.broker.groups.at(0).machine.state()


@pytest.mark.parametrize("version", range(2, 11))
def test_the_same_answers_logs_and_states_as_without_it(version: int) -> None:
    quick, slow = desk_with_group(), desk_with_group()
    fast, plain = quick.connect(), slow.connect()
    for turn in range(40):
        answers = []
        for desk, connection in ((quick, fast), (slow, plain)):
            if desk is slow:
                connection.express = None
            request = commit(desk, turn * 10**9, version, partition=turn % 3, epoch=turn // 7)
            answers.append(answer(desk, connection, frame_of(request, version, turn)))
            desk.advance(0.01)
        if version >= 10:  # topic ids are each node's own
            ids = [desk.node.broker.partitions.of_name("t")[0].topic_id for desk in (quick, slow)]
            answers[1] = answers[1].replace(ids[1], ids[0])
        assert answers[0] == answers[1] is not None
    assert isinstance(fast.express, CommitLane) == (version >= 6)
    assert quick.node.metrics.apis[8].requests == slow.node.metrics.apis[8].requests == 40
    ids = [desk.node.broker.partitions.of_name("t")[0].topic_id for desk in (quick, slow)]
    assert _without_checksums(log_of(quick), ids[0]) == _without_checksums(log_of(slow), ids[1])
    again = Desk(SETTINGS, disks=quick.disks, boot_id="boot-2")
    again.advance(5)
    assert state_of(again) == state_of(quick)


def _without_checksums(log: bytes, topic_id: bytes) -> list[bytes]:
    """Batches with the topic's id, which differs from node to node, and so their checksums, left out."""
    batches = []
    while log:
        size = 12 + int.from_bytes(log[8:12], "big")
        batches.append(log[:17] + log[21:size].replace(topic_id, b""))
        log = log[size:]
    return batches


def test_only_the_first_of_many_goes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = desk_with_group()
    connection = desk.connect()
    learned = []
    learn = CommitLanes.learn
    monkeypatch.setattr(CommitLanes, "learn", lambda *given: (learned.append(1), learn(*given)))
    for offset in range(5):
        assert error_of(desk, connection, commit(desk, offset, 9)) == 0
    assert learned == [1]


def test_commits_of_several_lengths_keep_their_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member reads topics whose names are not equally long, and commits one after the other."""
    desk = desk_with_group()
    connection = desk.connect()
    learned = []
    learn = CommitLanes.learn
    monkeypatch.setattr(CommitLanes, "learn", lambda *given: (learned.append(1), learn(*given)))
    for offset in range(4):
        for metadata in ("", "m", "more"):
            assert error_of(desk, connection, commit(desk, offset, 9, metadata=metadata)) == 0
    assert len(learned) == 3


def test_what_the_group_refuses_is_refused() -> None:
    desk = desk_with_group()
    member = member_of(desk)
    connection = desk.connect()

    def mine(offset: int) -> int:
        return error_of(desk, connection, commit(desk, offset, 9, member=member, generation=1))

    assert [mine(1), mine(2)] == [0, 0]
    assert isinstance(connection.express, CommitLane)
    desk.advance(60)  # its session is over
    assert mine(3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.node.broker.groups.at(0).machine.offsets.get("g", "t", 0)[0] == 2


def test_a_refusal_is_not_remembered_though_its_offset_is_there_already() -> None:
    desk = desk_with_group()
    member = member_of(desk)
    connection = desk.connect()
    assert error_of(desk, connection, commit(desk, 2, 9, member=member, generation=1)) == 0
    assert error_of(desk, connection, commit(desk, 2, 9)) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.advance(60)  # the member's session is over: now anybody may commit
    assert error_of(desk, connection, commit(desk, 2, 9)) == 0


def test_commits_keep_a_member_alive() -> None:
    desk = desk_with_group()
    member = member_of(desk)
    connection = desk.connect()
    for offset in range(10):
        desk.advance(6)  # of ten seconds that the session lasts
        assert error_of(desk, connection, commit(desk, offset, 9, member=member, generation=1)) == 0
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert desk.ask(beat, 4).error_code == 0


def test_a_deleted_topic_takes_no_commits() -> None:
    desk = desk_with_group()
    connection = desk.connect()
    for offset in range(2):
        assert error_of(desk, connection, commit(desk, offset, 9)) == 0
    desk.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert error_of(desk, connection, commit(desk, 2, 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_without_the_right_nothing_is_committed() -> None:
    desk = desk_with_group()
    connection = desk.connect()
    for offset in range(2):
        assert error_of(desk, connection, commit(desk, offset, 9)) == 0
    desk.node.access.authorizer = Nobody()
    assert error_of(desk, connection, commit(desk, 2, 9)) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_before_the_high_watermark_has_passed_it_a_commit_is_not_answered() -> None:
    desk = desk_with_group()
    connection = desk.connect()
    for offset in range(2):
        assert error_of(desk, connection, commit(desk, offset, 9)) == 0
    desk.node.broker.partitions.of_name("__consumer_offsets")[0].leader.isr = frozenset({1, 2})
    desk.send(connection, commit(desk, 2, 9), 9)
    assert desk.receive(connection) is None


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([6, 7, 8, 9]), st.binary(max_size=12), st.integers(0, 400), st.integers(0, 255))
def test_mangled_frames_never_get_another_answer(version: int, extra: bytes, at: int, value: int) -> None:
    """A learned lane and a fresh connection agree on any frame that resembles the learned one."""
    quick, slow = desk_with_group(), desk_with_group()
    frame = frame_of(commit(quick, 7, version), version, 1)
    learned, fresh = quick.connect(), slow.connect()
    assert answer(quick, learned, frame) == answer(slow, fresh, frame)
    fresh.express = None
    mangled = bytearray(frame + extra)
    mangled[at % len(mangled)] = value
    if mangled[:2] != b"\0\x08":
        return  # another API
    assert answer(quick, learned, bytes(mangled)) == answer(slow, fresh, bytes(mangled))
    assert state_of(quick) == state_of(slow)
