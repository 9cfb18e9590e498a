"""A leader asks for another ISR: which requests are granted, and what the leader is told."""

from __future__ import annotations

import pytest

from headrace.base.ids import TopicId
from headrace.machines.metadata.controller.alter_partition import (
    AlteredPartition,
    IsrChange,
    IsrMember,
)
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.controller.leadership import RECOVERED, RECOVERING
from headrace.machines.metadata.image import NO_LEADER
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import PartitionChangeRecord
from unit.machines.metadata.cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(4, static={"min.insync.replicas": "2"})
    cluster.apply(cluster.controller.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})]))
    return cluster


def wanted(cluster: Cluster, isr: tuple[int, ...], **facts: int) -> IsrChange:
    state = cluster.partition()
    members = [IsrMember(id, cluster.image.brokers[id].epoch) for id in isr]
    change = IsrChange(
        cluster.image.topics["t"].id, 0, state.leader_epoch, state.partition_epoch, members, RECOVERED
    )
    for name, value in facts.items():
        setattr(change, name, value)
    return change


def ask(cluster: Cluster, change: IsrChange, broker: int = 1) -> MetadataDecision[list[AlteredPartition]]:
    return cluster.controller.alter_partitions(broker, cluster.image.brokers[broker].epoch, [change])


def test_a_smaller_isr_and_a_larger_one(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["t"].id
    decision = ask(cluster, wanted(cluster, (1, 3)))
    assert decision.records == [PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1, 3])]
    (altered,) = cluster.apply(decision)
    assert altered.error is ErrorCode.NONE
    assert altered.partition == cluster.partition(), "it is told what the record makes of it"
    assert altered.partition.leader_epoch == 0
    assert altered.partition.partition_epoch == 1
    cluster.apply(ask(cluster, wanted(cluster, (1,))))
    assert cluster.partition().eligible_leader_replicas == (3,)
    cluster.apply(ask(cluster, wanted(cluster, (1, 2))))
    assert (cluster.partition().isr, cluster.partition().eligible_leader_replicas) == ((1, 2), ())


def test_the_same_isr_raises_the_partition_epoch(cluster: Cluster) -> None:
    """A copy of an earlier request, which may still be on its way, is void from then on."""
    earlier = wanted(cluster, (1, 2))
    decision = ask(cluster, wanted(cluster, (1, 2, 3)))
    topic_id = cluster.image.topics["t"].id
    assert decision.records == [PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1, 2, 3])]
    (altered,) = cluster.apply(decision)
    assert altered.partition == cluster.partition()
    assert cluster.partition().partition_epoch == 1
    assert ask(cluster, earlier).reply[0].error is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"topic_id": TopicId(b"?" * 16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 4}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": [IsrMember(1), IsrMember(1)]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [IsrMember(1), IsrMember(4)]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"isr": [IsrMember(1), IsrMember(2, 999)]}, ErrorCode.INELIGIBLE_REPLICA),
        ({"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"recovery": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(cluster: Cluster, facts: dict[str, object], code: ErrorCode) -> None:
    for _ in range(5):  # epochs of both kinds that others can be below and above
        cluster.change(leader=1)
    change = wanted(cluster, (1, 2))
    for name, value in facts.items():
        setattr(change, name, value)
    decision = ask(cluster, change)
    assert (decision.reply[0].error, decision.records) == (code, [])


def test_a_broker_that_does_not_lead(cluster: Cluster) -> None:
    assert ask(cluster, wanted(cluster, (1, 2)), broker=2).reply[0].error is ErrorCode.INVALID_REQUEST


def test_an_earlier_run_of_the_leader(cluster: Cluster) -> None:
    epoch = cluster.image.brokers[1].epoch
    cluster.start(1)
    with pytest.raises(Refusal) as refusal:
        cluster.controller.alter_partitions(1, epoch, [wanted(cluster, (1, 2))])
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_who_is_fenced_stopping_or_started_again_cannot_join(cluster: Cluster) -> None:
    cluster.apply(ask(cluster, wanted(cluster, (1,))))
    before = wanted(cluster, (1, 3))
    cluster.fence(2)
    assert ask(cluster, wanted(cluster, (1, 2))).reply[0].error is ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(3, wants_shutdown=True)
    assert ask(cluster, wanted(cluster, (1, 3))).reply[0].error is ErrorCode.INELIGIBLE_REPLICA
    cluster.start(3)
    assert ask(cluster, before).reply[0].error is ErrorCode.INELIGIBLE_REPLICA, "that was its earlier run"
    assert ask(cluster, wanted(cluster, (1, 3))).reply[0].error is ErrorCode.NONE


def test_a_replica_in_a_directory_that_has_failed_cannot_join() -> None:
    """Its leader may not know it yet, and takes it for in sync while there is nothing to fetch."""
    cluster = Cluster(3, directories=2)
    cluster.apply(cluster.controller.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})]))
    failed = cluster.partition().directories[2]
    cluster.beat(3, offline=[failed])
    assert cluster.partition().isr == (1, 2)
    assert ask(cluster, wanted(cluster, (1, 2, 3))).reply[0].error is ErrorCode.INELIGIBLE_REPLICA
    online = [one for one in cluster.image.brokers[3].directories if one != failed]
    cluster.change(directories=[*cluster.partition().directories[:2], *online])
    assert ask(cluster, wanted(cluster, (1, 2, 3))).reply[0].error is ErrorCode.NONE


def test_a_leader_that_recovers_says_when_it_has(cluster: Cluster) -> None:
    cluster.change(leader=1, isr=[1], leader_recovery_state=RECOVERING)
    two = wanted(cluster, (1, 2), recovery=RECOVERING)
    assert ask(cluster, two).reply[0].error is ErrorCode.INVALID_REQUEST
    cluster.apply(ask(cluster, wanted(cluster, (1, 2))))
    assert cluster.partition().leader_recovery_state == RECOVERED


def test_a_leader_without_its_directory_loses_the_partition(cluster: Cluster) -> None:
    """Its directory failed between its request and now, and another member of the new ISR leads at once."""
    cluster.change(isr=[1])
    cluster.apply(cluster.controller.fence_brokers([2]))
    cluster.change(directories=[(1).to_bytes(16, "big"), bytes(16), bytes(16)])
    (altered,) = cluster.apply(ask(cluster, wanted(cluster, (1, 3))))
    assert altered.error is ErrorCode.NEW_LEADER_ELECTED
    assert cluster.partition().leader == 3 != NO_LEADER


def test_a_leader_that_leaves_itself_out_resigns(cluster: Cluster) -> None:
    """It has found damage in its log: others lead, and it is not eligible before it has caught up."""
    change = wanted(cluster, (2, 3))
    decision = ask(cluster, change)
    (altered,) = decision.reply
    assert altered.error == ErrorCode.NEW_LEADER_ELECTED
    assert altered.partition is not None
    assert altered.partition.leader in (2, 3)
    assert altered.partition.isr == (2, 3)
    assert 1 not in altered.partition.eligible_leader_replicas
