"""Numbers about the cluster for operators: the quorum, all partitions, and the replicas of this broker.

They are counted when somebody asks, from state that is there anyway: nothing on the hot path keeps them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.machines.metadata.image import NO_LEADER, ClusterImage
from headrace.machines.raft.leader import Leader
from headrace.machines.raft.quorum import Quorum
from headrace.node.partition import Partition


class QuorumNumbers(NamedTuple):
    """As this node knows them."""

    role: str
    leader_id: int  # -1: not known
    epoch: int
    high_watermark: int
    end_offset: int
    lag: dict[int, int]  # records that each other voter does not have; only the leader knows


def quorum_numbers(quorum: Quorum, end_offset: int) -> QuorumNumbers:
    role = quorum.role
    followers = role.followers if isinstance(role, Leader) else {}
    return QuorumNumbers(
        role.name,
        quorum.leader_id,
        quorum.epoch,
        quorum.high_watermark,
        end_offset,
        {id: max(0, end_offset - progress.end_offset) for id, progress in sorted(followers.items())},
    )


class ClusterNumbers(NamedTuple):
    """Of the whole cluster, from the committed metadata."""

    brokers: int  # that may lead
    fenced_brokers: int
    stopping_brokers: int  # in controlled shutdown
    topics: int
    partitions: int
    offline_partitions: int  # nobody leads them
    unpreferred_leaders: int  # partitions that another than their first replica leads


def cluster_numbers(image: ClusterImage) -> ClusterNumbers:
    brokers = image.brokers.values()
    partitions = offline = unpreferred = 0
    for topic in image.topics.values():
        for state in topic.partitions.values():
            partitions += 1
            offline += state.leader == NO_LEADER
            unpreferred += state.leader != state.replicas[0]
    return ClusterNumbers(
        brokers=sum(broker.is_active for broker in brokers),
        fenced_brokers=sum(broker.is_fenced for broker in brokers),
        stopping_brokers=sum(broker.in_controlled_shutdown and not broker.is_fenced for broker in brokers),
        topics=len(image.topics),
        partitions=partitions,
        offline_partitions=offline,
        unpreferred_leaders=unpreferred,
    )


class ReplicaNumbers(NamedTuple):
    """Of the partitions of one broker. Those about in-sync sets count partitions that it leads."""

    replicas: int
    leaders: int
    offline_replicas: int  # their log directory failed
    under_replicated: int
    under_min_isr: int
    at_min_isr: int
    lag: dict[int, int]  # by follower: the records that it lacks in the partition in which it lacks most


def replica_numbers(partitions: Iterable[Partition]) -> ReplicaNumbers:
    replicas = leaders = offline = under_replicated = under_min_isr = at_min_isr = 0
    lag: dict[int, int] = {}
    for partition in partitions:
        replicas += 1
        offline += partition.is_offline
        leader = partition.leader
        if leader is None:
            continue
        leaders += 1
        in_sync = len(leader.isr)
        under_replicated += in_sync < len(partition.replicas)
        under_min_isr += in_sync < partition.min_insync_replicas
        at_min_isr += in_sync == partition.min_insync_replicas
        for replica, records in leader.lag():
            lag[replica] = max(lag.get(replica, 0), records)
    return ReplicaNumbers(
        replicas,
        leaders,
        offline,
        under_replicated,
        under_min_isr,
        at_min_isr,
        dict(sorted(lag.items())),
    )


class ClusterMetrics(NamedTuple):
    """All that a node knows; None for a role that its process does not have."""

    quorum: QuorumNumbers
    is_active_controller: bool
    controller: "ControllerNumbers | None"
    broker: "BrokerNumbers | None"


class ControllerNumbers(NamedTuple):
    cluster: ClusterNumbers
    unclean_elections: int  # since the start of the process
    fencings: int


class BrokerNumbers(NamedTuple):
    own: ReplicaNumbers
    isr_shrinks: int  # since the start of the process
    isr_expands: int
