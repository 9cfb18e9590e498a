"""Records of older brokers, records whose group is gone, and heartbeats that write none."""

from __future__ import annotations

from harness.consumer_groups import GROUP, Consumer, Coordinator, compacted
from harness.group_shard import FakeTopics
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.consumer.heartbeat import HeartbeatResult
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.subscriptions import metadata_hash
from headrace.protocol.coordinator_records import Record, groups


def test_a_join_is_decided_whole() -> None:
    topics = FakeTopics(orders=2)
    coordinator = Coordinator(topics)
    topic_id = topics.id_of("orders")
    assert topic_id is not None
    decision = coordinator.decide(
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert decision == Decision(
        reply=HeartbeatResult("a", 2, heartbeat_interval_ms=5_000, assignment=[(topic_id, [0, 1])]),
        records=[
            Record(
                groups.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"),
                groups.ConsumerGroupMemberMetadataValue(
                    instance_id=None,
                    rack_id=None,
                    client_id="app",
                    client_host="/10.0.0.1",
                    subscribed_topic_names=["orders"],
                    subscribed_topic_regex="",
                    rebalance_timeout_ms=30_000,
                    server_assignor=None,
                ),
            ),
            Record(
                groups.ConsumerGroupMetadataKey(group_id=GROUP),
                groups.ConsumerGroupMetadataValue(epoch=2, metadata_hash=metadata_hash(["orders"], topics)),
            ),
            Record(
                groups.ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id="a"),
                groups.ConsumerGroupTargetAssignmentMemberValue(
                    topic_partitions=[groups.TargetPartitions(topic_id=topic_id, partitions=[0, 1])]
                ),
            ),
            Record(
                groups.ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
                groups.ConsumerGroupTargetAssignmentMetadataValue(
                    assignment_epoch=2, assignment_timestamp=1_700_000_000_000
                ),
            ),
            Record(
                groups.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
                groups.ConsumerGroupCurrentMemberAssignmentValue(
                    member_epoch=2,
                    previous_member_epoch=0,
                    state=0,
                    assigned_partitions=[
                        groups.CurrentPartitions(
                            topic_id=topic_id, partitions=[0, 1], assignment_epochs=[2, 2]
                        )
                    ],
                ),
            ),
        ],
    )
    assert coordinator.groups.groups == {}, "nothing is so before it is written"


def test_a_heartbeat_without_news_writes_nothing_and_keeps_the_session() -> None:
    coordinator = Coordinator(FakeTopics(orders=2))
    alone = Consumer(coordinator, "a", "orders").settle()
    for _ in range(5):
        coordinator.pass_time(44)
        decision = coordinator.decide(member_id="a", member_epoch=alone.epoch)
        assert decision == Decision(HeartbeatResult("a", 2, heartbeat_interval_ms=5_000))


def test_groups_have_intervals_of_their_own() -> None:
    coordinator = Coordinator(FakeTopics(orders=2))
    coordinator.settings.overrides[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    alone = Consumer(coordinator, "a", "orders")
    assert alone.beat().heartbeat_interval_ms == 7_000
    coordinator.pass_time(49)
    assert "a" in coordinator.group.members
    coordinator.pass_time(2)
    assert coordinator.group.is_empty


def test_a_member_that_moves_is_written_down_without_a_new_epoch() -> None:
    coordinator = Coordinator(FakeTopics(orders=2))
    alone = Consumer(coordinator, "a", "orders").settle()
    coordinator.heartbeat(caller=Caller("app", "/10.9.9.9"), member_id="a", member_epoch=alone.epoch)
    assert coordinator.group.members["a"].client_host == "/10.9.9.9"
    assert coordinator.group.epoch == alone.epoch


def test_the_topics_of_an_older_broker_are_taken_out_of_the_log() -> None:
    coordinator = Coordinator(FakeTopics(orders=2))
    Consumer(coordinator, "a", "orders").settle()
    key = groups.ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    coordinator.settle(Decision(records=[Record(key, groups.ConsumerGroupPartitionMetadataValue())]))
    assert coordinator.group.has_partition_metadata
    Consumer(coordinator, "b", "orders").beat()
    assert not coordinator.group.has_partition_metadata
    assert Record(key, None) in coordinator.log


def test_an_assignment_of_an_older_broker_holds_since_its_members_epoch() -> None:
    value = groups.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4, assigned_partitions=[groups.CurrentPartitions(topic_id=b"t" * 16, partitions=[1, 2])]
    )
    assert Member("a").with_assignment(value).assigned == {b"t" * 16: {1: 4, 2: 4}}


def test_a_log_that_was_compacted_in_parts_gives_every_partition_to_its_holder() -> None:
    """Compaction swaps one segment after the other: an earlier one may still say that a member holds what a
    later one, already compacted, gives to another, before it says that the first has let go.
    """
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = (Consumer(coordinator, name, "orders", instance_id=name) for name in "ab")
    for _ in range(2):
        first.settle()
        second.settle()
        first.settle()
        second.settle()
        first.leave()
        second.settle()
        first.settle()
        second.settle()
        first.settle()
        second.leave()
    second.settle()
    log = coordinator.log
    for start in range(len(log)):
        for end in range(start, len(log) + 1):
            rebuilt = coordinator.rebuilt(log[:start] + compacted(log[start:end]) + log[end:])
            rebuilt.loaded(coordinator.clock.now())
            rebuilt.check()


def test_tombstones_of_what_is_gone_make_no_group() -> None:
    coordinator = Coordinator(FakeTopics(orders=2))
    Consumer(coordinator, "a", "orders").settle()
    coordinator.settle(Decision(records=coordinator.group.tombstones()))
    tombstones = [record for record in coordinator.log if record.value is None]
    assert coordinator.rebuilt(tombstones).groups == {}


def test_the_hash_tells_of_every_change_of_a_topic() -> None:
    topics = FakeTopics(orders=2, bills=2)
    seen = {metadata_hash(["orders", "bills"], topics)}
    assert metadata_hash(["bills", "orders", "missing"], topics) in seen
    assert metadata_hash(["missing"], topics) == metadata_hash([], topics) == 0
    topics.grow("orders", 3)
    seen.add(metadata_hash(["orders", "bills"], topics))
    topics.delete("orders")
    seen.add(metadata_hash(["orders", "bills"], topics))
    topics.create("orders", 3)
    seen.add(metadata_hash(["orders", "bills"], topics))
    assert len(seen) == 4
