"""A group on a node: find the coordinator, join, commit, restart, and find everything again."""

from __future__ import annotations

import pytest

from harness.node_groups import SETTINGS, commit, committed, find, join, member_of
from headrace.node.coordinators.coordinator import java_hash
from headrace.node.coordinators.loader import OFFSETS_PER_COST, SLICE_COST
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
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
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost


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


def test_the_topic_is_made_when_a_coordinator_is_looked_for() -> None:
    host = ManualHost(SETTINGS)
    found = find(host, "g")
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
    assert len(host.partitions("__consumer_offsets")) == 3
    config = host.node.controller.metadata.image.topic_config("__consumer_offsets")
    assert config["cleanup.policy"] == "compact"


def test_a_segment_smaller_than_topics_may_have_is_no_reason_to_have_no_coordinator() -> None:
    host = ManualHost({**SETTINGS, "offsets.topic.segment.bytes": "2000"})
    assert find(host, "g").error_code == 0
    assert (
        host.node.controller.metadata.image.topic_config("__consumer_offsets")["segment.bytes"] == "1048576"
    )


def test_without_the_topic_nobody_coordinates() -> None:
    host = ManualHost(SETTINGS)
    assert join(host, "g").error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_and_its_offsets_survive_a_restart() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    find(host, "g")
    member, generation = member_of(host, "g")
    assert commit(host, "g", "t", 42, member=member, generation=generation) == 0

    after = ManualHost(SETTINGS, disks=host.disks, clock=host.clock)
    after.advance(1)
    told = committed(after, "g", "t")
    assert (told.committed_offset, told.metadata) == (42, "here")
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert after.ask(beat, 4).error_code == 0
    (group,) = after.ask(ListGroupsRequest(), 5).groups
    assert (group.group_id, group.group_state, group.group_type) == ("g", "Stable", "classic")


def test_a_silent_member_is_forgotten() -> None:
    host = ManualHost(SETTINGS)
    find(host, "g")
    member, generation = member_of(host, "g")
    host.advance(11)
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    assert host.ask(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_waits_for_the_first() -> None:
    host = ManualHost(SETTINGS)
    find(host, "g")
    first, _ = member_of(host, "g")
    second = join(host, "g").member_id
    connection = host.connect()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=second,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"also")],
    )
    host.send(connection, request, 9)
    assert host.receive(connection) is None
    again = join(host, "g", first)
    assert sorted(one.member_id for one in again.members) == sorted([first, second])
    late = host.receive(connection)
    assert (late.error_code, late.generation_id, late.leader) == (0, again.generation_id, first)


def test_a_commit_waits_for_the_flush_where_one_is_promised() -> None:
    host = ManualHost({**SETTINGS, "log.flush.interval.messages": "1"})
    host.create_topic("t")
    find(host, "g")
    host.runs_jobs = False
    connection = host.connect()
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
    host.send(connection, request, 8)
    reader = host.connect()
    question = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    host.send(reader, question, 9)
    assert host.receive(connection) is None
    assert host.receive(reader) is None, "nobody is told what could still be lost"
    host.run_jobs()
    assert host.receive(connection).topics[0].partitions[0].error_code == 0
    assert host.receive(reader).groups[0].topics[0].partitions[0].committed_offset == 5


def test_clients_cannot_write_to_the_coordinators_topic() -> None:
    host = ManualHost(SETTINGS)
    find(host, "g")
    batch = bytearray(build_batch([(0, b"k", b"v", ())]))
    request: ProduceRequest = host.produce_request("__consumer_offsets", batch)
    (topic,) = host.ask(request, 9).responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_others_are_served_while_a_coordinator_loads() -> None:
    host = ManualHost({**SETTINGS, "offsets.topic.num.partitions": "1"})
    host.create_topic("t", 10_000)
    find(host, "g")
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index, committed_metadata=""
                    )
                    for index in range(10_000)
                ],
            )
        ],
    )
    host.ask(request, 8)

    after = ManualHost({**SETTINGS, "offsets.topic.num.partitions": "1"}, disks=host.disks, clock=host.clock)
    question = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    turns = 0
    while (answer := after.ask(question, 9).groups[0]).error_code:
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        after.advance(0.000_1)
        turns += 1
    assert turns >= 10_000 / OFFSETS_PER_COST / SLICE_COST / 2, "each slice gives way to others"
    assert [one.committed_offset for one in answer.topics[0].partitions] == list(range(10_000))


@pytest.mark.parametrize("version", range(1, 8))
def test_an_error_of_the_group_is_told_with_each_partition(version: int) -> None:
    """aiokafka looks at nothing else, and would read from the start or the end of the topic."""
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])]
    )
    answer = ManualHost(SETTINGS).ask(request, version)
    told = [
        (one.partition_index, one.error_code, one.committed_offset) for one in answer.topics[0].partitions
    ]
    assert told == [(0, ErrorCode.NOT_COORDINATOR, -1), (3, ErrorCode.NOT_COORDINATOR, -1)]
    assert version < 2 or answer.error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_by_topic_id_name_the_ids_that_nobody_has() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    find(host, "g")
    assert commit(host, "g", "t", 7) == 0
    there, gone = host.partitions("t")[0].topic_id, bytes(range(16))
    topics = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (gone, there)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (answer,) = host.ask(request, 10).groups
    told = {
        topic.topic_id: [
            (one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions
        ]
        for topic in answer.topics
    }
    assert told == {there: [(0, 7, ErrorCode.NONE)], gone: [(0, -1, ErrorCode.UNKNOWN_TOPIC_ID)]}


def test_a_coordinators_topic_keeps_its_partitions() -> None:
    """With another number of them a group would be looked for in another one, where nothing is of it."""
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    find(host, "g")
    assert commit(host, "g", "t", 7) == 0
    more = CreatePartitionsTopic(name="__consumer_offsets", count=4, assignments=None)
    (grown,) = host.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1_000), 3).results
    after = ManualHost(SETTINGS, disks=host.disks, clock=host.clock)
    after.advance(2)
    assert committed(after, "g", "t").committed_offset == 7
    assert grown.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "__consumer_offsets" in grown.error_message


def test_the_places_of_long_names_are_not_remembered() -> None:
    """There may be a hundred thousand of them."""
    host = ManualHost(SETTINGS)
    for name in ("short", "long" * 1_000):
        assert find(host, name).error_code == 0
    assert list(host.node.broker.groups._places) == ["short"]
