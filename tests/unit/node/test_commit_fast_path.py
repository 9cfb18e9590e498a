"""The commits' fast path answers and writes what the ordinary way would have, or does not answer."""

from collections import deque
from gc import collect
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.authorizers import Nobody
from harness.second_replica import add_second, second_fetches
from harness.two_brokers import lead
from headrace.machines.groups.groups import Groups
from headrace.node.commit_fast_path import CommitFastPath, CommitFastPaths
from headrace.node.connection import Connection
from headrace.node.handlers.offset_commit import OffsetCommit
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
from headrace.simulator.frames import joined
from headrace.simulator.manual_host import ManualHost
from headrace.storage.errors import DiskFull

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def host_with_group() -> ManualHost:
    host = ManualHost(SETTINGS)
    host.create_topic("t", 3)
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    return host


def member_of(host: ManualHost) -> str:
    """The only member of the group, in generation 1, with a session of ten seconds."""
    connection = host.connect()
    wish = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    wish.member_id = host.ask(wish, 9, connection).member_id
    host.send(connection, wish, 9)
    host.advance(0)
    assert host.receive(connection).generation_id == 1
    host.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=wish.member_id), 3)
    return wish.member_id


def commit(
    host: ManualHost,
    offset: int,
    version: int,
    *,
    partition: int = 0,
    epoch: int = 3,
    metadata: str | None = "m",
    member: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    topic_id = host.partitions("t")[0].topic_id if version >= 10 else bytes(16)
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


def error_of(host: ManualHost, connection: Connection, request: OffsetCommitRequest, version: int = 9) -> int:
    return host.ask(request, version, connection).topics[0].partitions[0].error_code


def frame_of(request: OffsetCommitRequest, version: int, correlation: int) -> bytes:
    body = request_codec(8, version).encode(request)
    return joined(request_frame(8, version, correlation, "client", [body]))[4:]


def answer(host: ManualHost, connection: Connection, frame: bytes) -> bytes | None:
    parts = host.node.handle(host.clock.now(), connection, memoryview(bytearray(frame)))
    return joined(parts) if parts is not None else None


def log_of(host: ManualHost) -> bytes:
    log = host.partitions("__consumer_offsets")[0].log
    assert log is not None
    span = log.read(0, max_bytes=1 << 20, limit_offset=log.log_end_offset, at_least_one=True)
    assert span is not None
    return bytes(span.read())


def groups_of(host: ManualHost) -> Groups:
    shard = host.node.broker.groups.at(0)
    assert shard is not None
    return shard.machine


def committed_offset(host: ManualHost) -> int:
    kept = groups_of(host).offsets.get("g", "t", 0)
    assert kept is not None
    return kept[0]


def state_of(host: ManualHost) -> object:
    return groups_of(host).state()


@pytest.mark.parametrize("version", range(2, 11))
def test_the_same_answers_logs_and_states_as_without_it(version: int) -> None:
    quick, slow = host_with_group(), host_with_group()
    fast, plain = quick.connect(), slow.connect()
    for turn in range(40):
        answers: list[Any] = []
        for host, connection in ((quick, fast), (slow, plain)):
            if host is slow:
                connection.fast_path = None
            request = commit(host, turn * 10**9, version, partition=turn % 3, epoch=turn // 7)
            answers.append(answer(host, connection, frame_of(request, version, turn)))
            host.advance(0.01)
        if version >= 10:  # topic ids are each node's own
            ids = [host.partitions("t")[0].topic_id for host in (quick, slow)]
            answers[1] = answers[1].replace(ids[1], ids[0])
        assert answers[0] == answers[1] is not None
    assert isinstance(fast.fast_path, CommitFastPath) == (version >= 6)
    assert quick.node.metrics.apis[8].requests == slow.node.metrics.apis[8].requests == 40
    ids = [host.partitions("t")[0].topic_id for host in (quick, slow)]
    assert _without_checksums(log_of(quick), ids[0]) == _without_checksums(log_of(slow), ids[1])
    again = ManualHost(SETTINGS, disks=quick.disks, boot_id="boot-2")
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


def count_learning(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A 1 for every fast path that is learned from now on."""
    learned: list[int] = []
    learn = CommitFastPaths.learn

    def counted(*given: Any) -> None:
        learned.append(1)
        learn(*given)

    monkeypatch.setattr(CommitFastPaths, "learn", counted)
    return learned


def test_only_the_first_of_many_goes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_with_group()
    connection = host.connect()
    learned = count_learning(monkeypatch)
    for offset in range(5):
        assert error_of(host, connection, commit(host, offset, 9)) == 0
    assert learned == [1]


def test_commits_of_several_lengths_keep_their_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member reads topics whose names are not equally long, and commits one after the other."""
    host = host_with_group()
    connection = host.connect()
    learned = count_learning(monkeypatch)
    for offset in range(4):
        for metadata in ("", "m", "more"):
            assert error_of(host, connection, commit(host, offset, 9, metadata=metadata)) == 0
    assert len(learned) == 3


def test_what_the_group_refuses_is_refused() -> None:
    host = host_with_group()
    member = member_of(host)
    connection = host.connect()

    def mine(offset: int) -> int:
        return error_of(host, connection, commit(host, offset, 9, member=member, generation=1))

    assert [mine(1), mine(2)] == [0, 0]
    assert isinstance(connection.fast_path, CommitFastPath)
    host.advance(60)  # its session is over
    assert mine(3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed_offset(host) == 2


def test_a_refusal_is_not_remembered_though_its_offset_is_there_already() -> None:
    host = host_with_group()
    member = member_of(host)
    connection = host.connect()
    assert error_of(host, connection, commit(host, 2, 9, member=member, generation=1)) == 0
    assert error_of(host, connection, commit(host, 2, 9)) == ErrorCode.UNKNOWN_MEMBER_ID
    host.advance(60)  # the member's session is over: now anybody may commit
    assert error_of(host, connection, commit(host, 2, 9)) == 0


def test_a_refused_topic_without_partitions_before_the_one_that_is_taken() -> None:
    host = host_with_group()
    connection = host.connect()
    request = commit(host, 2, 9)
    request.topics.insert(0, OffsetCommitRequestTopic(name="unknown", partitions=[]))
    answered = host.ask(request, 9, connection).topics
    assert [(topic.name, len(topic.partitions)) for topic in answered] == [("t", 1), ("unknown", 0)]
    assert connection.fast_path is None


def test_commits_keep_a_member_alive() -> None:
    host = host_with_group()
    member = member_of(host)
    connection = host.connect()
    for offset in range(10):
        host.advance(6)  # of ten seconds that the session lasts
        assert error_of(host, connection, commit(host, offset, 9, member=member, generation=1)) == 0
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert host.ask(beat, 4).error_code == 0


def test_a_deleted_topic_takes_no_commits() -> None:
    host = host_with_group()
    connection = host.connect()
    for offset in range(2):
        assert error_of(host, connection, commit(host, offset, 9)) == 0
    host.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert error_of(host, connection, commit(host, 2, 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_without_the_right_nothing_is_committed() -> None:
    host = host_with_group()
    connection = host.connect()
    for offset in range(2):
        assert error_of(host, connection, commit(host, offset, 9)) == 0
    host.node.access.authorizer = Nobody()
    assert error_of(host, connection, commit(host, 2, 9)) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_before_the_high_watermark_has_passed_it_a_commit_is_not_answered() -> None:
    host = host_with_group()
    connection = host.connect()
    for offset in range(2):
        assert error_of(host, connection, commit(host, offset, 9)) == 0
    add_second(host, host.partitions("__consumer_offsets")[0])
    host.send(connection, commit(host, 2, 9), 9)
    assert host.receive(connection) is None


class TestFollowers:
    """A commit that followers have to get first is answered when they have it, with the same bytes."""

    @staticmethod
    def frames(host: ManualHost, version: int) -> list[bytes]:
        return [frame_of(commit(host, offset, version), version, offset) for offset in range(1, 5)]

    @pytest.fixture(params=[6, 8, 9, 10])
    def version(self, request: pytest.FixtureRequest) -> int:
        version: int = request.param
        return version

    def test_the_same_answers_and_the_same_log(self, version: int) -> None:
        quick, slow = host_with_group(), host_with_group()
        for host in (quick, slow):
            add_second(host, host.partitions("__consumer_offsets")[0])
        learned, fresh = quick.connect(), slow.connect()
        for frame in self.frames(quick, version):
            quick.send_frame(learned, frame)
            slow.send_frame(fresh, frame)
            fresh.fast_path = None
        assert isinstance(learned.fast_path, CommitFastPath)
        assert quick.answers[learned.id] == slow.answers[fresh.id] == deque()
        for end in (3, 4):
            for host in (quick, slow):
                second_fetches(host, host.partitions("__consumer_offsets")[0], end)
            assert len(quick.answers[learned.id]) == end
            assert quick.answers[learned.id] == slow.answers[fresh.id]
        if version < 10:  # else it has the topic's id
            assert log_of(quick) == log_of(slow)

    def test_a_refused_topic_behind_the_one_that_is_taken(self) -> None:
        """It is refused again in the next commit, which looks the same but for the offset."""
        host = host_with_group()
        connection = host.connect()
        add_second(host, host.partitions("__consumer_offsets")[0])
        for offset in (1, 2):
            request = commit(host, offset, 9)
            refused = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
            request.topics.append(OffsetCommitRequestTopic(name="unknown", partitions=[refused]))
            host.send(connection, request, 9)
        second_fetches(host, host.partitions("__consumer_offsets")[0], 2)
        for _ in range(2):
            answered = host.receive(connection).topics
            assert [topic.name for topic in answered] == ["t", "unknown"]
            assert answered[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_it_is_quick_from_the_second_on(self, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        host = host_with_group()
        add_second(host, host.partitions("__consumer_offsets")[0])
        connection = host.connect()
        first, *others = self.frames(host, version)
        host.send_frame(connection, first)
        monkeypatch.setattr(OffsetCommit, "handle", None)
        for frame in others:
            host.send_frame(connection, frame)
        assert len(connection.pending) == 4

    def test_another_leader_may_have_other_records_there(self, version: int) -> None:
        host = host_with_group()
        partition = host.partitions("__consumer_offsets")[0]
        add_second(host, partition)
        connection = host.connect()
        for offset in (1, 2):
            host.send(connection, commit(host, offset, version), version)
        lead(host, "__consumer_offsets", 0, 2)
        for _ in range(2):
            told = host.receive(connection).topics[0]
            assert told.partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert error_of(host, connection, commit(host, 3, version), version) == ErrorCode.NOT_COORDINATOR


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([6, 7, 8, 9]), st.binary(max_size=12), st.integers(0, 400), st.integers(0, 255))
def test_mangled_frames_never_get_another_answer(version: int, extra: bytes, at: int, value: int) -> None:
    """A learned fast path and a fresh connection agree on any frame that resembles the learned one."""
    quick, slow = host_with_group(), host_with_group()
    frame = frame_of(commit(quick, 7, version), version, 1)
    learned, fresh = quick.connect(), slow.connect()
    assert answer(quick, learned, frame) == answer(slow, fresh, frame)
    fresh.fast_path = None
    mangled = bytearray(frame + extra)
    mangled[at % len(mangled)] = value
    if mangled[:2] != b"\0\x08":
        return  # another API
    assert answer(quick, learned, bytes(mangled)) == answer(slow, fresh, bytes(mangled))
    assert state_of(quick) == state_of(slow)


def test_a_machine_that_was_made_again_is_not_kept_for_those_who_committed_before() -> None:
    """It may hold the offsets of a million groups, and a connection may be silent for hours."""
    host = host_with_group()
    connection = host.connect()
    for offset in (1, 2):
        assert error_of(host, connection, commit(host, offset, 9)) == 0
    assert isinstance(connection.fast_path, CommitFastPath)
    shard = host.node.broker.groups.at(0)
    assert shard is not None
    before = ref(shard.machine)
    shard.fail(host.clock.now(), DiskFull("no space"))
    host.advance(2)
    collect()
    assert before() is None
    assert error_of(host, connection, commit(host, 3, 9)) == 0
    assert committed_offset(host) == 3


def test_a_commit_that_would_take_much_memory_is_not_remembered() -> None:
    host = host_with_group()
    connection = host.connect()
    request = commit(host, 1, 9)
    request.group_instance_id = "i" * 3_000
    for _ in range(2):
        assert error_of(host, connection, request) == 0
    assert connection.fast_path is None
