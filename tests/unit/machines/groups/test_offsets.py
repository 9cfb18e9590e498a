"""Committed and pending offsets: whichever was written last counts, whenever it becomes visible."""

from __future__ import annotations

import pytest

from harness.group_shard import GroupShard
from headrace.machines.coordination import Writer
from headrace.machines.groups.group import Committer
from headrace.machines.groups.offsets import Offsets
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headrace.protocol.coordinator_records.offset_commits import TopicColumns
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from headrace.protocol.notation import ZERO_UUID
from unit.machines.groups.classic_groups import commit_request


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)


def offset_of(offsets: Offsets) -> int | None:
    committed = offsets.get("g", "t", 0)
    return None if committed is None else committed[0]


def played(*steps: tuple[object, ...]) -> Offsets:
    """("commit", offset), ("pend", producer, offset), ("end", producer, is_committed), ("gone",)."""
    offsets = Offsets()
    for what, *words in steps:
        match what, words:
            case "commit", [int(offset)]:
                offsets.replay("g", "t", 0, value(offset), None)
            case "pend", [int(producer), int(offset)]:
                offsets.replay("g", "t", 0, value(offset), producer)
            case "end", [int(producer), bool(is_committed)]:
                offsets.replay_end(producer, is_committed)
            case _:
                offsets.replay("g", "t", 0, None, None)
    return offsets


@pytest.mark.parametrize(
    ("steps", "offset", "is_unstable"),
    [
        ([("commit", 1)], 1, False),
        ([("commit", 1), ("pend", 7, 2)], 1, True),
        ([("commit", 1), ("pend", 7, 2), ("end", 7, True)], 2, False),
        ([("commit", 1), ("pend", 7, 2), ("end", 7, False)], 1, False),
        ([("pend", 7, 2), ("pend", 7, 3), ("end", 7, True)], 3, False),
        ([("pend", 7, 2), ("commit", 3), ("end", 7, True)], 3, False),
        ([("pend", 7, 2), ("commit", 3), ("pend", 7, 4), ("end", 7, True)], 4, False),
        ([("pend", 7, 2), ("pend", 8, 3), ("end", 8, True)], 3, True),
        ([("pend", 7, 2), ("pend", 8, 3), ("end", 8, True), ("end", 7, True)], 3, False),
        ([("pend", 7, 2), ("pend", 8, 3), ("end", 8, False), ("end", 7, True)], 2, False),
        ([("pend", 7, 2), ("pend", 8, 3), ("end", 7, True), ("end", 8, True)], 3, False),
        ([("commit", 1), ("gone",)], None, False),
        ([("commit", 1), ("pend", 7, 2), ("gone",), ("end", 7, True)], None, False),
        ([("pend", 7, 2), ("gone",), ("pend", 7, 3), ("end", 7, True)], 3, False),
        ([("end", 9, True)], None, False),
    ],
)
def test_what_counts(steps: list[tuple[object, ...]], offset: int | None, is_unstable: bool) -> None:
    offsets = played(*steps)
    assert offset_of(offsets) == offset
    assert offsets.is_unstable("g", "t", 0) is is_unstable
    assert offsets.has_open_transactions("g") is is_unstable


def test_what_is_gone_leaves_nothing_behind() -> None:
    assert played(("commit", 1), ("pend", 7, 2), ("gone",)).state() == Offsets().state()
    assert played(("pend", 7, 2), ("end", 7, False)).state() == Offsets().state()


def test_records_of_old_brokers_are_read() -> None:
    shard = GroupShard()
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    shard.machine.replay(Record(key, LegacyOffsetCommitValue(offset=5, metadata="m", commit_timestamp=1)))
    committed = shard.machine.offsets.get("g", "t", 0)
    assert committed is not None
    assert committed[:4] == (5, -1, "m", 1)


def test_a_place_holds_whoever_is_pending_in_it() -> None:
    offsets = played(("commit", 1), ("pend", 7, 2))
    offsets.replay("g", "u", 3, value(1), 7)
    offsets.replay("h", "u", 3, value(1), None)
    assert offsets.keys_of_group("g") == [("g", "t", 0), ("g", "u", 3)]
    assert offsets.keys_of_topics({"u"}) == {"g": [("g", "u", 3)], "h": [("h", "u", 3)]}
    assert offsets.keys_of_topics({"x"}) == {}


def fetched(shard: GroupShard) -> OffsetFetchResponsePartitions:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    (answer,) = shard.ask(OffsetFetchRequest(groups=[group]), 9).groups
    partition: OffsetFetchResponsePartitions = answer.topics[0].partitions[0]
    return partition


def test_everything_that_was_committed_comes_back() -> None:
    shard = GroupShard()
    request = commit_request(committed_offset=5, committed_leader_epoch=3, committed_metadata="ä note")
    shard.ask(request, 8)
    shard.crash()
    assert fetched(shard) == OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, metadata="ä note"
    )


def test_a_topic_that_was_deleted_and_created_again_has_no_offset_yet() -> None:
    shard = GroupShard()
    shard.ask(commit_request(committed_offset=5), 9)
    assert fetched(shard).committed_offset == 5
    shard.topics.delete("t")
    shard.topics.create("t", 4)
    assert fetched(shard).committed_offset == -1


@pytest.mark.parametrize(
    ("length", "error"), [(10, ErrorCode.NONE), (11, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_metadata_has_a_limit(length: int, error: ErrorCode) -> None:
    shard = GroupShard(GroupSettings(offset_metadata_max_bytes=10))
    (topic,) = shard.ask(commit_request(committed_metadata="x" * length), 8).topics
    assert topic.partitions[0].error_code == error
    assert len(shard.lines) == (error is ErrorCode.NONE)


def test_offsets_of_a_transaction_are_written_in_it() -> None:
    shard = GroupShard()
    topic_id = shard.topics.id_of("t") or ZERO_UUID
    offsets = TopicColumns("t", topic_id, [0], [9], [-1], [""])
    decision = shard.machine.commit_transactional(shard.now, Committer("g"), Writer(7, 2), [offsets])
    assert decision.writer == Writer(7, 2)
    assert decision.records == [
        Record(
            OffsetCommitKey(group="g", topic="t", partition=0),
            OffsetCommitValue(offset=9, metadata="", commit_timestamp=shard.now.wall_ms, topic_id=topic_id),
        )
    ]
    shard.apply(decision)
    assert fetched(shard).committed_offset == -1
    shard.crash()
    shard.end_transaction(7, True)
    assert fetched(shard).committed_offset == 9
