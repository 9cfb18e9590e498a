"""A group on a desk: find the coordinator, join, commit, restart, and find everything again."""

from __future__ import annotations

from typing import Any

import pytest

from harness.desk import Desk
from harness.single_partition import commit_of, committed_of
from headrace.node.coordinators.coordinator import java_hash
from headrace.node.coordinators.loader import RECORDS_PER_SLICE
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.produce import ProduceRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.records.builder import build_batch

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("group-ä", 293427478),
        ("polygenelubricants", 0),
        ("\U0001f600", 1772899),
    ],
)
def test_keys_are_hashed_as_java_does(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def find(desk: Desk, key: str, kind: int = 0) -> Any:
    (found,) = desk.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators
    return found


def committed(desk: Desk, group: str, topic: str) -> Any:
    (answer,) = desk.ask(committed_of(group, topic), 9).groups
    assert answer.error_code == 0
    return answer.topics[0].partitions[0]


def commit(desk: Desk, group: str, topic: str, offset: int, *, member: str = "", generation: int = -1) -> int:
    request = commit_of(group, topic, offset, generation_id_or_member_epoch=generation, member_id=member)
    return desk.ask(request, 9).topics[0].partitions[0].error_code


def join(desk: Desk, group: str, member: str = "") -> Any:
    connection = desk.connect()
    desk.send(
        connection,
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"wants")],
        ),
        9,
    )
    desk.advance(0)  # the initial delay of the rebalance is over
    return desk.receive(connection)


def member_of(desk: Desk, group: str) -> tuple[str, int]:
    """The only member of a settled group."""
    first = join(desk, group)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = join(desk, group, first.member_id)
    assert joined.error_code == 0
    assert joined.leader == joined.member_id
    assert [one.metadata for one in joined.members] == [b"wants"]
    synced = desk.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"gets")],
        ),
        5,
    )
    assert (synced.error_code, synced.assignment) == (0, b"gets")
    return joined.member_id, joined.generation_id


def test_the_topic_is_made_when_a_coordinator_is_looked_for() -> None:
    desk = Desk(SETTINGS)
    found = find(desk, "g")
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
    assert len(desk.node.broker.partitions.of_name("__consumer_offsets") or ()) == 3
    config = desk.node.controller.metadata.image.topic_config("__consumer_offsets")
    assert config["cleanup.policy"] == "compact"


def test_a_segment_smaller_than_topics_may_have_is_no_reason_to_have_no_coordinator() -> None:
    desk = Desk({**SETTINGS, "offsets.topic.segment.bytes": "2000"})
    assert find(desk, "g").error_code == 0
    assert (
        desk.node.controller.metadata.image.topic_config("__consumer_offsets")["segment.bytes"] == "1048576"
    )


def test_without_the_topic_nobody_coordinates() -> None:
    desk = Desk(SETTINGS)
    assert join(desk, "g").error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_and_its_offsets_survive_a_restart() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    find(desk, "g")
    member, generation = member_of(desk, "g")
    assert commit(desk, "g", "t", 42, member=member, generation=generation) == 0

    after = Desk(SETTINGS, disks=desk.disks, clock=desk.clock)
    after.advance(1)
    told = committed(after, "g", "t")
    assert (told.committed_offset, told.metadata) == (42, "here")
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert after.ask(beat, 4).error_code == 0
    (group,) = after.ask(ListGroupsRequest(), 5).groups
    assert (group.group_id, group.group_state, group.group_type) == ("g", "Stable", "classic")


def test_a_silent_member_is_forgotten() -> None:
    desk = Desk(SETTINGS)
    find(desk, "g")
    member, generation = member_of(desk, "g")
    desk.advance(11)
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert desk.ask(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_waits_for_the_first() -> None:
    desk = Desk(SETTINGS)
    find(desk, "g")
    first, _ = member_of(desk, "g")
    second = join(desk, "g").member_id
    connection = desk.connect()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=second,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"also")],
    )
    desk.send(connection, request, 9)
    assert desk.receive(connection) is None
    again = join(desk, "g", first)
    assert sorted(one.member_id for one in again.members) == sorted([first, second])
    late = desk.receive(connection)
    assert (late.error_code, late.generation_id, late.leader) == (0, again.generation_id, first)


def test_a_commit_waits_for_the_flush_where_one_is_promised() -> None:
    desk = Desk({**SETTINGS, "log.flush.interval.messages": "1"})
    desk.create_topic("t")
    find(desk, "g")
    desk.runs_jobs = False
    connection = desk.connect()
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    )
    desk.send(connection, request, 8)
    reader = desk.connect()
    question = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    desk.send(reader, question, 9)
    assert desk.receive(connection) is None
    assert desk.receive(reader) is None, "nobody is told what could still be lost"
    desk.run_jobs()
    assert desk.receive(connection).topics[0].partitions[0].error_code == 0
    assert desk.receive(reader).groups[0].topics[0].partitions[0].committed_offset == 5


def test_clients_cannot_write_to_the_coordinators_topic() -> None:
    desk = Desk(SETTINGS)
    find(desk, "g")
    batch = bytearray(build_batch([(0, b"k", b"v", ())]))
    request: ProduceRequest = desk.produce_request("__consumer_offsets", batch)
    (topic,) = desk.ask(request, 9).responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_others_are_served_while_a_coordinator_loads() -> None:
    desk = Desk({**SETTINGS, "offsets.topic.num.partitions": "1"})
    desk.create_topic("t", 1_000)
    find(desk, "g")
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index, committed_metadata=""
                    )
                    for index in range(1_000)
                ],
            )
        ],
    )
    desk.ask(request, 8)

    after = Desk({**SETTINGS, "offsets.topic.num.partitions": "1"}, disks=desk.disks, clock=desk.clock)
    question = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    turns = 0
    while (answer := after.ask(question, 9).groups[0]).error_code:
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        after.advance(0.000_1)
        turns += 1
    assert turns >= 1_000 / RECORDS_PER_SLICE - 1, "each slice gives way to others"
    assert [one.committed_offset for one in answer.topics[0].partitions] == list(range(1_000))


@pytest.mark.parametrize("version", range(1, 8))
def test_an_error_of_the_group_is_told_with_each_partition(version: int) -> None:
    """aiokafka looks at nothing else, and would read from the start or the end of the topic."""
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])]
    )
    answer = Desk(SETTINGS).ask(request, version)
    told = [
        (one.partition_index, one.error_code, one.committed_offset) for one in answer.topics[0].partitions
    ]
    assert told == [(0, ErrorCode.NOT_COORDINATOR, -1), (3, ErrorCode.NOT_COORDINATOR, -1)]
    assert version < 2 or answer.error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_by_topic_id_name_the_ids_that_nobody_has() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    find(desk, "g")
    assert commit(desk, "g", "t", 7) == 0
    there, gone = desk.node.broker.partitions.of_name("t")[0].topic_id, bytes(range(16))
    topics = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (gone, there)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (answer,) = desk.ask(request, 10).groups
    told = {
        topic.topic_id: [
            (one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions
        ]
        for topic in answer.topics
    }
    assert told == {there: [(0, 7, ErrorCode.NONE)], gone: [(0, -1, ErrorCode.UNKNOWN_TOPIC_ID)]}
