"""Metrics of the quorum, the controller and replication, in Prometheus' format.

Where Kafka has the same number, the help text ends with the name that it has there.
"""

from headrace.node.cluster_metrics import BrokerNumbers, ClusterMetrics, ControllerNumbers, QuorumNumbers
from headrace.server.metrics import Text


def write_cluster(text: Text, metrics: ClusterMetrics) -> None:
    _quorum(text, metrics.quorum)
    text.one(
        "headrace_active_controller",
        "gauge",
        "1 on the node that is the active controller, 0 on the others (ActiveControllerCount).",
        metrics.is_active_controller,
    )
    if metrics.controller is not None:
        _controller(text, metrics.controller)
    if metrics.broker is not None:
        _broker(text, metrics.broker)


def _quorum(text: Text, quorum: QuorumNumbers) -> None:
    gauges = (
        (
            "leader_id",
            "Node that leads the metadata quorum; -1 if not known (current-leader).",
            quorum.leader_id,
        ),
        ("epoch", "Epoch of the metadata quorum (current-epoch).", quorum.epoch),
        (
            "high_watermark",
            "End of the committed metadata that this node knows (high-watermark).",
            quorum.high_watermark,
        ),
        ("log_end_offset", "End of this node's metadata log (log-end-offset).", quorum.end_offset),
    )
    for name, help, value in gauges:
        text.one(f"headrace_quorum_{name}", "gauge", help, value)
    text.head("headrace_quorum_role", "gauge", "1 for the role of this node in the quorum (current-state).")
    text.value("headrace_quorum_role", 1, role=quorum.role)
    text.head(
        "headrace_quorum_voter_lag_records",
        "gauge",
        "Metadata records that a voter does not have; on the leader only.",
    )
    for voter, records in quorum.lag.items():
        text.value("headrace_quorum_voter_lag_records", records, voter=voter)


def _controller(text: Text, numbers: ControllerNumbers) -> None:
    """Every controller has these, as far as it knows the metadata: take the maximum over all nodes."""
    cluster = numbers.cluster
    gauges = (
        ("brokers", "Brokers that may lead partitions (ActiveBrokerCount).", cluster.brokers),
        (
            "fenced_brokers",
            "Registered brokers that are stopped or out of touch (FencedBrokerCount).",
            cluster.fenced_brokers,
        ),
        ("stopping_brokers", "Brokers in controlled shutdown.", cluster.stopping_brokers),
        ("topics", "Topics of the cluster (GlobalTopicCount).", cluster.topics),
        ("partitions", "Partitions of the cluster (GlobalPartitionCount).", cluster.partitions),
        (
            "offline_partitions",
            "Partitions of the cluster that nobody leads (OfflinePartitionsCount).",
            cluster.offline_partitions,
        ),
        (
            "unpreferred_leaders",
            "Partitions whose leader is not their first replica (PreferredReplicaImbalanceCount).",
            cluster.unpreferred_leaders,
        ),
    )
    for name, help, value in gauges:
        text.one(f"headrace_cluster_{name}", "gauge", help, value)
    text.one(
        "headrace_unclean_elections_total",
        "counter",
        "Leaders elected by this controller that may lack acknowledged records "
        "(UncleanLeaderElectionsPerSec).",
        numbers.unclean_elections,
    )
    text.one(
        "headrace_broker_fencings_total",
        "counter",
        "Brokers that this controller fenced, because they ended or fell silent.",
        numbers.fencings,
    )


def _broker(text: Text, numbers: BrokerNumbers) -> None:
    own = numbers.own
    gauges = (
        ("replicas", "Partitions with a replica on this broker (PartitionCount).", own.replicas),
        ("leaders", "Partitions that this broker leads (LeaderCount).", own.leaders),
        (
            "offline_replicas",
            "Replicas on this broker whose log directory failed (OfflineReplicaCount).",
            own.offline_replicas,
        ),
        (
            "under_replicated_partitions",
            "Partitions led here with replicas that are not in sync (UnderReplicatedPartitions).",
            own.under_replicated,
        ),
        (
            "under_min_isr_partitions",
            "Partitions led here that refuse acks=all writes (UnderMinIsrPartitionCount).",
            own.under_min_isr,
        ),
        (
            "at_min_isr_partitions",
            "Partitions led here with exactly min.insync.replicas in sync (AtMinIsrPartitionCount).",
            own.at_min_isr,
        ),
    )
    for name, help, value in gauges:
        text.one(f"headrace_{name}", "gauge", help, value)
    text.one(
        "headrace_isr_shrinks_total",
        "counter",
        "Changes of in-sync sets of partitions led here that removed replicas (IsrShrinksPerSec).",
        numbers.isr_shrinks,
    )
    text.one(
        "headrace_isr_expands_total",
        "counter",
        "Changes of in-sync sets of partitions led here that added replicas (IsrExpandsPerSec).",
        numbers.isr_expands,
    )
    text.head(
        "headrace_replica_lag_records",
        "gauge",
        "Records that a follower lacks in the partition led here in which it lacks most (MaxLag).",
    )
    for follower, records in own.lag.items():
        text.value("headrace_replica_lag_records", records, follower=follower)
