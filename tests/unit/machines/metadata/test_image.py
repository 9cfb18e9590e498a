"""Replay: the same records make the same image, and a snapshot makes it too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.metadata.controller.alter_configs import KeyChange, Operation, ResourceChange
from headrace.machines.metadata.controller.create_partitions import MorePartitions
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.delete_topics import DoomedTopic
from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from headrace.machines.metadata.snapshot import image_hash, snapshot_records
from headrace.machines.metadata.versions import encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import (
    BeginTransactionRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
)
from unit.machines.metadata.cluster import Cluster

names = st.sampled_from(["a", "b.c", "d_e", "f"])
actions = st.one_of(
    st.tuples(st.just("create"), names, st.integers(1, 4)),
    st.tuples(st.just("grow"), names, st.integers(2, 6)),
    st.tuples(st.just("delete"), names, st.just(0)),
    st.tuples(st.just("alter"), names, st.integers(0, 9)),
    st.tuples(st.just("reset"), names, st.just(0)),
    st.tuples(st.just("restart"), names, st.integers(1, 2)),
    st.tuples(st.just("producer"), names, st.just(0)),
)


def act(cluster: Cluster, kind: str, name: str, number: int) -> None:
    controller = cluster.controller
    match kind:
        case "create":
            cluster.apply(controller.create_topics([NewTopic(name, number, 2)]))
        case "grow":
            cluster.apply(controller.create_partitions([MorePartitions(name, number)]))
        case "delete":
            cluster.apply(controller.delete_topics([DoomedTopic(name)]))
        case "alter":
            change = KeyChange("retention.ms", Operation.SET, str(number))
            cluster.apply(controller.alter_configs([ResourceChange(TOPIC_RESOURCE, name, [change])]))
        case "reset":
            change = KeyChange("retention.ms", Operation.DELETE, None)
            cluster.apply(controller.alter_configs([ResourceChange(TOPIC_RESOURCE, name, [change])]))
        case "restart":
            cluster.start(number)
        case "producer":
            cluster.apply(controller.allocate_producer_ids(1, cluster.image.brokers[1].epoch))


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=25))
def test_a_snapshot_is_the_image(history: list[tuple[str, str, int]]) -> None:
    cluster = Cluster(2)
    for kind, name, number in history:
        act(cluster, kind, name, number)
    copy = ClusterImage()
    for record in snapshot_records(cluster.image):
        copy.replay(decode_record(encode(record)))
    assert image_hash(copy) == image_hash(cluster.image)
    assert copy.topics == cluster.image.topics
    assert cluster.image.copy().topics == cluster.image.topics
    assert image_hash(cluster.image.copy()) == image_hash(cluster.image)
    assert copy.topics_by_id == cluster.image.topics_by_id
    assert copy.colliding_names == cluster.image.colliding_names
    assert copy.configs == cluster.image.configs
    assert copy.brokers == cluster.image.brokers
    assert copy.features == cluster.image.features
    assert copy.next_producer_id == cluster.image.next_producer_id
    assert +copy.partitions_by_directory == +cluster.image.partitions_by_directory
    act(cluster, "create", "one.more", 1)
    assert image_hash(copy) != image_hash(cluster.image)


def test_a_copy_changes_on_its_own() -> None:
    cluster = Cluster(2)
    cluster.apply(cluster.controller.create_topics([NewTopic("t.u", 1, 2)]))
    copy = cluster.image.copy()
    before = image_hash(copy)
    cluster.fence(1)
    cluster.apply(cluster.controller.delete_topics([DoomedTopic("t.u")]))
    change = KeyChange("unclean.leader.election.enable", Operation.SET, "true")
    cluster.apply(cluster.controller.alter_configs([ResourceChange(BROKER_RESOURCE, "", [change])]))
    act(cluster, "create", "t_u", 1)
    assert image_hash(copy) == before
    assert copy.colliding_names == {"t_u": {"t.u"}}
    assert copy.partitions_by_directory.total() == 2


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = Cluster()
    epoch = cluster.image.brokers[1].epoch
    blocks = [cluster.apply(cluster.controller.allocate_producer_ids(1, epoch)) for _ in range(3)]
    assert blocks == [range(1000), range(1000, 2000), range(2000, 3000)]


def test_an_earlier_run_of_a_broker_gets_no_producer_ids() -> None:
    cluster = Cluster()
    epoch = cluster.image.brokers[1].epoch
    cluster.start(1)
    with pytest.raises(Refusal) as refusal:
        cluster.controller.allocate_producer_ids(1, epoch)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_change_of_partition_keeps_what_it_does_not_name() -> None:
    cluster = Cluster(2)
    cluster.apply(cluster.controller.create_topics([NewTopic("t", 1, 2)]))
    topic = cluster.image.topics["t"]
    leader, other = topic.partitions[0].replicas
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=[leader]))
    first = state = topic.partitions[0]
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((leader,), leader, 0, 1)
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=other, isr=[other]))
    assert first.leader == leader, "whoever has the earlier state keeps it"
    state = topic.partitions[0]
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((other,), other, 1, 2)
    assert state.replicas == (leader, other)


def test_fenced_brokers_are_not_live() -> None:
    cluster = Cluster(2)
    epoch = cluster.image.brokers[1].epoch
    cluster.image.replay(FenceBrokerRecord(id=1, epoch=epoch))
    assert [broker.id for broker in cluster.image.live_brokers()] == [2]
    cluster.image.replay(UnfenceBrokerRecord(id=1, epoch=epoch))
    assert [broker.id for broker in cluster.image.live_brokers()] == [1, 2]
    cluster.image.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch))
    assert sorted(cluster.image.brokers) == [2]


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="t", topic_id=b"y" * 16),
        RemoveTopicRecord(topic_id=b"z" * 16),
        PartitionRecord(partition_id=0, topic_id=b"z" * 16),
        PartitionChangeRecord(partition_id=7, topic_id=b"x" * 16),
        FenceBrokerRecord(id=1, epoch=999),
        UnregisterBrokerRecord(broker_id=9, broker_epoch=0),
        BeginTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_that_cannot_be_true_are_not_swallowed(record: object) -> None:
    cluster = Cluster()
    cluster.image.replay(TopicRecord(name="t", topic_id=b"x" * 16))
    with pytest.raises(BadMetadata):
        cluster.image.replay(record)  # type: ignore[arg-type]
