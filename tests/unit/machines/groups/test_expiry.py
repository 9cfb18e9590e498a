"""When offsets are too old, and when a group is gone with them: Kafka's rules, one by one."""

from __future__ import annotations

import pytest

from harness.group_shard import GroupShard
from headrace.machines.coordination import Writer
from headrace.machines.groups.expiry import TOMBSTONES_PER_BATCH
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.messages.join_group import JoinGroupRequestProtocol
from headrace.protocol.notation import ZERO_UUID
from headrace.protocol.versioned import encode_versioned
from unit.machines.groups.classic_groups import (
    commit_request,
    heartbeat_request,
    leave_request,
    stable,
)

MINUTE_MS = 60_000
RETENTION = GroupSettings(offsets_retention_minutes=60, offsets_retention_check_interval_ms=MINUTE_MS)


def new_shard() -> GroupShard:
    return GroupShard(RETENTION)


def places(shard: GroupShard) -> list[tuple[str, int]]:
    return [(topic, partition) for _, topic, partition in shard.machine.offsets.keys_of_group("g")]


def alive(shard: GroupShard, members: list[str], minutes: int) -> None:
    """Time passes while the members send heartbeats."""
    for _ in range(minutes * 10):
        for member in members:
            shard.ask(heartbeat_request(member, 1), 4)
        shard.advance(MINUTE_MS / 10)


def subscribed_to(*topics: str) -> list[JoinGroupRequestProtocol]:
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)
    return [JoinGroupRequestProtocol(name="range", metadata=metadata)]


def test_a_simple_group_ages_offset_by_offset() -> None:
    shard = new_shard()
    shard.ask(commit_request(topic="t"), 8)
    shard.advance(30 * MINUTE_MS)
    shard.ask(commit_request(topic="u"), 8)
    shard.advance(29 * MINUTE_MS)
    assert places(shard) == [("t", 0), ("u", 0)]
    shard.advance(2 * MINUTE_MS)
    assert places(shard) == [("u", 0)]
    assert "g" in shard.machine.groups
    shard.advance(30 * MINUTE_MS)
    assert shard.machine.groups == {}
    assert shard.rebuilt().state() == shard.machine.state()


def test_the_group_goes_after_its_last_offset_in_one_batch() -> None:
    shard = new_shard()
    shard.ask(commit_request(), 8)
    shard.advance(59.5 * MINUTE_MS)
    shard.clock.advance(60)
    decisions = shard.machine.wake(shard.now)
    assert [decision.records for decision in decisions] == [
        [
            Record(OffsetCommitKey(group="g", topic="t", partition=0), None),
            Record(GroupMetadataKey(group="g"), None),
        ]
    ]


def test_an_empty_group_ages_from_the_moment_it_became_empty() -> None:
    shard = new_shard()
    members = stable(shard)
    shard.ask(commit_request(members[0], 1), 8)
    alive(shard, members, 50)
    shard.ask(leave_request(*members), 5)
    shard.advance(59 * MINUTE_MS)
    assert places(shard) == [("t", 0)], "older than the retention, but the group was in use"
    shard.crash()
    shard.advance(2 * MINUTE_MS)
    assert shard.machine.groups == {}


def test_a_living_group_keeps_what_it_subscribes_to() -> None:
    shard = new_shard()
    members = stable(shard, protocols=subscribed_to("t"))
    for topic in ("t", "u"):
        shard.ask(commit_request(members[0], 1, topic=topic), 8)
    alive(shard, members, 62)
    assert places(shard) == [("t", 0)]


def test_nothing_ages_while_nobody_can_tell_what_the_group_subscribes_to() -> None:
    shard = new_shard()
    members = stable(shard)  # its metadata cannot be read
    shard.ask(commit_request(members[0], 1), 8)
    alive(shard, members, 62)
    assert places(shard) == [("t", 0)]


def test_nothing_of_another_protocol_ages_while_it_is_alive() -> None:
    shard = new_shard()
    members = stable(shard, protocol_type="connect")
    shard.ask(commit_request(members[0], 1), 8)
    alive(shard, members, 62)
    assert places(shard) == [("t", 0)]
    shard.ask(leave_request(*members), 5)
    shard.advance(62 * MINUTE_MS)
    assert shard.machine.groups == {}


def test_old_clients_say_themselves_how_long() -> None:
    shard = new_shard()
    request = commit_request()
    request.retention_time_ms = 5 * MINUTE_MS
    shard.ask(request, 4)
    shard.crash()
    shard.advance(4 * MINUTE_MS)
    assert places(shard) == [("t", 0)]
    shard.advance(2 * MINUTE_MS)
    assert places(shard) == []


def test_old_clients_that_say_for_ever() -> None:
    shard = new_shard()
    request = commit_request()
    request.retention_time_ms = 2**63 - 1
    shard.ask(request, 4)
    shard.crash()
    shard.advance(120 * MINUTE_MS)
    assert places(shard) == [("t", 0)]


def test_what_an_open_transaction_may_change_stays() -> None:
    shard = new_shard()
    shard.ask(commit_request(), 8)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = OffsetCommitValue(offset=9, metadata="", commit_timestamp=shard.now.wall_ms)
    shard.machine.offsets.replay(key.group, key.topic, key.partition, value, 7)
    shard.advance(120 * MINUTE_MS)
    assert places(shard) == [("t", 0)]
    shard.machine.replay_end(7, False)
    shard.advance(2 * MINUTE_MS)
    assert shard.machine.groups == {}


def test_a_group_without_offsets_goes_with_the_next_look() -> None:
    shard = new_shard()
    members = stable(shard)
    alive(shard, members, 2)
    assert "g" in shard.machine.groups
    shard.ask(leave_request(*members), 5)
    shard.advance(2 * MINUTE_MS)
    assert shard.machine.groups == {}


def test_many_tombstones_are_many_batches() -> None:
    shard = new_shard()
    for partition in range(TOMBSTONES_PER_BATCH + 1):
        key = OffsetCommitKey(group="g", topic="t", partition=partition)
        value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=shard.now.wall_ms)
        shard.machine.replay(Record(key, value))
    shard.clock.advance(3601)
    decisions = shard.machine.wake(shard.now)
    assert [len(decision.records) for decision in decisions] == [TOMBSTONES_PER_BATCH, 2]
    assert decisions[-1].records[-1].key == GroupMetadataKey(group="g")


def test_offsets_of_deleted_topics_go() -> None:
    shard = new_shard()
    for topic in ("t", "u"):
        shard.ask(commit_request(topic=topic), 8)
    (decision,) = shard.machine.forget_topics(shard.now, ["u", "v"])
    assert decision.records == [Record(OffsetCommitKey(group="g", topic="u", partition=0), None)]
    shard.apply(decision)
    assert places(shard) == [("t", 0)]
    assert shard.machine.forget_topics(shard.now, ["u"]) == []


def test_offsets_of_topics_that_were_deleted_while_nobody_looked_go() -> None:
    """Also if another topic has the name by now; offsets of old versions do not say which one they mean."""
    shard = new_shard()
    for topic in ("t", "gone", "other", "old"):
        shard.ask(commit_request(topic=topic), 8)
    ids = {"t": b"t" * 16, "other": b"o" * 16, "old": b"x" * 16}
    for topic, topic_id in (("t", ids["t"]), ("other", b"?" * 16), ("old", ZERO_UUID)):
        key = OffsetCommitKey(group="g", topic=topic, partition=0)
        value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0, topic_id=topic_id)
        shard.machine.replay(Record(key, value))
    pending = OffsetCommitKey(group="g", topic="gone", partition=1)
    shard.machine.replay(
        Record(pending, OffsetCommitValue(offset=1, metadata="", commit_timestamp=0)), Writer(5, 0)
    )
    with pytest.raises(StopIteration) as last:
        next(shard.machine.offsets.keys_of_gone(ids.get, 100))
    keys = last.value.value
    assert keys == {"g": [("g", "gone", 0), ("g", "gone", 1), ("g", "other", 0)]}


def test_an_offset_that_retention_waits_for_does_not_expire() -> None:
    shard = new_shard()
    for topic in ("t", "u"):
        shard.ask(commit_request(topic=topic), 8)
    shard.topics.awaited.add(("t", "g"))
    shard.advance(120 * MINUTE_MS)
    assert places(shard) == [("t", 0)]
    shard.topics.awaited.clear()
    shard.advance(2 * MINUTE_MS)
    assert shard.machine.groups == {}


def test_offsets_of_gone_topics_are_looked_for_in_steps() -> None:
    """What changes between two steps is not removed: a commit for the new topic of that name, for example."""
    shard = new_shard()
    steps = shard.machine.offsets.keys_of_gone({"gone": b"n" * 16}.get, 1)
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0, topic_id=b"o" * 16)
    for group in ("a", "b", "c"):
        shard.machine.replay(Record(OffsetCommitKey(group=group, topic="gone", partition=0), value))
    assert next(steps) == {"a": [("a", "gone", 0)]}
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0, topic_id=b"n" * 16)
    shard.machine.replay(Record(OffsetCommitKey(group="b", topic="gone", partition=0), value))
    shard.machine.replay(Record(OffsetCommitKey(group="c", topic="gone", partition=0), None))
    assert list(steps) == [{}]  # and the last, which returns
