"""Replay: the same records make the same image, and a snapshot makes it too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.metadata.controller.alter_configs import KeyChange, Operation, ResourceChange
from headrace.machines.metadata.controller.create_partitions import MorePartitions
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.delete_topics import DoomedTopic
from headrace.machines.metadata.image import TOPIC_RESOURCE, BadMetadata, ClusterImage
from headrace.machines.metadata.snapshot import image_hash, snapshot_records
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT, encode
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
            cluster.apply(controller.allocate_producer_ids(1))


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=25))
def test_a_snapshot_is_the_image(history: list[tuple[str, str, int]]) -> None:
    cluster = Cluster(2)
    cluster.apply(cluster.controller.finalize_features(FINALIZED_AT_FORMAT))
    for kind, name, number in history:
        act(cluster, kind, name, number)
    copy = ClusterImage()
    for record in snapshot_records(cluster.image):
        copy.replay(decode_record(encode(record)))
    assert image_hash(copy) == image_hash(cluster.image)
    assert copy.topics == cluster.image.topics
    assert copy.topics_by_id == cluster.image.topics_by_id
    assert copy.colliding_names == cluster.image.colliding_names
    assert copy.configs == cluster.image.configs
    assert copy.brokers == cluster.image.brokers
    assert copy.features == cluster.image.features
    assert copy.next_producer_id == cluster.image.next_producer_id
    assert +copy.partitions_by_directory == +cluster.image.partitions_by_directory
    act(cluster, "create", "one.more", 1)
    assert image_hash(copy) != image_hash(cluster.image)


def test_a_restarted_broker_has_a_new_epoch_and_so_have_its_partitions() -> None:
    cluster = Cluster(2)
    cluster.apply(cluster.controller.create_topics([NewTopic("t", 4, 1)]))
    before = {index: state.leader_epoch for index, state in cluster.image.topics["t"].partitions.items()}
    first_epoch = cluster.image.brokers[1].epoch
    assert cluster.start(1) > first_epoch
    for index, state in cluster.image.topics["t"].partitions.items():
        raised = 1 if state.leader == 1 else 0
        assert state.leader_epoch == before[index] + raised
        assert state.partition_epoch == raised


def test_a_broker_that_comes_back_leads_what_nobody_led_if_it_has_everything() -> None:
    cluster = Cluster(2)
    cluster.apply(cluster.controller.create_topics([NewTopic("t", 3, 2)]))
    topic = cluster.image.topics["t"]
    facts = [
        {"isr": [1, 2]},
        {"isr": [], "eligible_leader_replicas": [2, 1]},
        {"isr": [2]},
    ]
    for index, fact in enumerate(facts):
        record = PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=-1, **fact)
        cluster.image.replay(record)
    cluster.start(1)
    in_sync, eligible, behind = (topic.partitions[index] for index in range(3))
    assert (in_sync.leader, in_sync.isr) == (1, (1, 2))
    assert (eligible.leader, eligible.isr, eligible.eligible_leader_replicas) == (1, (1,), (2,))
    assert (behind.leader, behind.isr) == (-1, (2,)), "it may lack acknowledged records"


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = Cluster()
    blocks = [cluster.apply(cluster.controller.allocate_producer_ids(1)) for _ in range(3)]
    assert blocks == [(0, 1000), (1000, 2000), (2000, 3000)]


def test_a_change_of_partition_keeps_what_it_does_not_name() -> None:
    cluster = Cluster(2)
    cluster.apply(cluster.controller.create_topics([NewTopic("t", 1, 2)]))
    topic = cluster.image.topics["t"]
    leader, other = topic.partitions[0].replicas
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=[leader]))
    state = topic.partitions[0]
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((leader,), leader, 0, 1)
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=other, isr=[other]))
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
