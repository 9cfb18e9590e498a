"""Numbers about quorum, cluster and replication: nothing in the node reads them, so only these tests notice
a wrong one.
"""

from __future__ import annotations

from harness.controllers import Controllers
from harness.replica_brokers import ReplicaBrokers
from headrace.machines.metadata.image import ClusterImage
from headrace.node.cluster_metrics import ClusterNumbers, ReplicaNumbers, cluster_numbers
from headrace.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from headrace.simulator.manual_host import ManualHost

TOPIC_ID = bytes(range(16))


def test_a_follower_leaves_the_in_sync_set_and_comes_back() -> None:
    brokers = ReplicaBrokers()
    brokers.create_topic(min_insync_replicas="2")
    brokers.exchange()

    def leaders() -> ReplicaNumbers:
        return brokers.hosts[1].node.broker.numbers().own

    def isr_changes() -> tuple[int, int]:
        numbers = brokers.hosts[1].node.broker.numbers()
        return numbers.isr_shrinks, numbers.isr_expands

    assert leaders() == ReplicaNumbers(1, 1, 0, 0, 0, 0, {2: 0, 3: 0})
    follower = brokers.hosts[2].node.broker.numbers().own
    assert follower == ReplicaNumbers(1, 0, 0, 0, 0, 0, {})
    brokers.separate(1, 3)
    brokers.produce(1, b"a", b"b", b"c")
    brokers.advance(2.0)
    brokers.control()
    assert leaders() == ReplicaNumbers(
        1, 1, 0, under_replicated=1, under_min_isr=0, at_min_isr=1, lag={2: 0, 3: 3}
    )
    assert isr_changes() == (1, 0)
    brokers.separate(1, 2)
    brokers.produce(1, b"d")
    brokers.advance(2.0)
    brokers.control()
    assert leaders() == ReplicaNumbers(
        1, 1, 0, under_replicated=1, under_min_isr=1, at_min_isr=0, lag={2: 1, 3: 4}
    )
    assert isr_changes() == (2, 0)
    brokers.heal()
    brokers.advance(2.0)
    brokers.control()
    brokers.advance(2.0)
    brokers.control()
    assert leaders() == ReplicaNumbers(1, 1, 0, 0, 0, 0, {2: 0, 3: 0})
    assert isr_changes()[0] == 2
    assert isr_changes()[1] >= 1, "both may come back in one change"


def test_the_whole_cluster_by_its_metadata() -> None:
    image = ClusterImage()
    for broker in (1, 2, 3, 4):
        image.replay(
            RegisterBrokerRecord(
                broker_id=broker, broker_epoch=broker, fenced=False, incarnation_id=bytes(16)
            )
        )
    image.replay(FenceBrokerRecord(id=3, epoch=3))
    image.replay(BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=4, in_controlled_shutdown=1))
    image.replay(TopicRecord(name="t", topic_id=TOPIC_ID))
    for number, (leader, replicas) in enumerate(((1, [1, 2]), (1, [2, 1]), (-1, [3]))):
        image.replay(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC_ID,
                replicas=replicas,
                isr=replicas,
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * len(replicas),
            )
        )
    assert cluster_numbers(image) == ClusterNumbers(
        brokers=2,
        fenced_brokers=1,
        stopping_brokers=1,
        topics=1,
        partitions=3,
        offline_partitions=1,
        unpreferred_leaders=2,
    )


def test_a_node_alone_leads_its_quorum() -> None:
    host = ManualHost()
    host.create_topic("t")
    metrics = host.node.cluster_metrics()
    quorum = metrics.quorum
    assert (quorum.role, quorum.leader_id, quorum.lag) == ("leader", 1, {})
    assert quorum.high_watermark == quorum.end_offset > 0
    assert metrics.is_active_controller
    assert metrics.controller is not None
    assert metrics.controller.cluster.brokers == 1
    assert metrics.broker is not None
    assert metrics.broker.own.leaders == 1


def test_voters_of_a_quorum() -> None:
    controllers = Controllers().start()
    leader = controllers.elected()
    controllers.run(1.0)
    told = leader.up.cluster_metrics()
    assert told.is_active_controller
    assert told.broker is None
    assert (told.quorum.role, told.quorum.leader_id) == ("leader", leader.id)
    others = [one for one in controllers.nodes.values() if one is not leader]
    assert set(told.quorum.lag) == {one.id for one in others}
    for other in others:
        metrics = other.up.cluster_metrics()
        assert not metrics.is_active_controller
        assert (metrics.quorum.role, metrics.quorum.leader_id) == ("follower", leader.id)
        assert metrics.quorum.lag == {}
