"""A leader's high watermark is not past the end of any replica in its maximal ISR, and rises only while that
ISR is large enough: what is acknowledged with acks=all is on all of them.

The judge compares the logs on the other nodes, if these run in the broker epoch that the leader counts.
"""

from headrace.base.ids import BrokerId
from headrace.machines.replication.leader import PartitionLeader
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes

Seen = tuple[PartitionLeader, int, int, frozenset[BrokerId]]


class HighWatermarkWithinIsr:
    name = "high_watermark_within_isr"

    def __init__(self) -> None:
        self._hosts: dict[int, Host] = {}
        self._seen: dict[tuple[int, bytes, int], Seen] = {}  # by node and partition

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        self._hosts[host.id] = host
        for partition in changes.partitions:
            leader = partition.leader
            if leader is None or partition.log is None or partition.is_offline:
                continue
            key = (host.id, partition.topic_id, partition.index)
            state = (leader, int(leader.high_watermark), leader.partition_epoch, leader.maximal_isr)
            before = self._seen.get(key)
            if before == state:
                continue
            self._seen[key] = state
            if before is not None and before[0] is leader and before[1] < state[1]:
                self._check_size(partition, leader, before[3])
            for replica in sorted(leader.maximal_isr - {leader.id}):
                self._check_replica(node, partition, leader, replica)

    @staticmethod
    def _check_size(partition: Partition, leader: PartitionLeader, before: frozenset[BrokerId]) -> None:
        # two changes of the set may come in one call, and the high watermark rises between them
        if max(len(before), len(leader.isr)) < partition.min_insync_replicas:
            raise Violation(
                f"the high watermark of {partition.topic}-{partition.index} rises to {leader.high_watermark} "
                f"with {sorted(leader.isr)} in sync, but {partition.min_insync_replicas} are needed"
            )

    def _check_replica(
        self, node: Node, partition: Partition, leader: PartitionLeader, replica: BrokerId
    ) -> None:
        other = self._hosts[replica].node if replica in self._hosts else None
        known = node.controller.metadata.image.brokers.get(replica)
        if other is None or known is None or other.broker.lifecycle.epoch != known.epoch:
            return  # it does not run, or the leader has not heard of its present life
        copy = other.broker.partitions.at(partition.topic, partition.index)
        if copy is None or copy.log is None or copy.is_offline or copy.topic_id != partition.topic_id:
            return
        if copy.log.log_end_offset < leader.high_watermark:
            raise Violation(
                f"{partition.topic}-{partition.index} has the high watermark {leader.high_watermark} in "
                f"epoch {leader.epoch}, but replica {replica} of {sorted(leader.maximal_isr)} ends at "
                f"{copy.log.log_end_offset}"
            )
