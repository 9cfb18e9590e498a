"""What has changed in a node since the judges last looked at it.

Most calls of a node change nothing that the judges check. Judges that look only at changes find as much as if
they looked at everything, in a tenth of the time.
"""

from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.simulator.host import Host

Seen = tuple[object, ...]


class Changes:
    __slots__ = ("has_quorum", "partitions")

    def __init__(self, partitions: list[Partition], *, has_quorum: bool) -> None:
        self.partitions = partitions  # that have changed
        self.has_quorum = has_quorum  # whether its part of the metadata quorum has changed


class _Known:
    """What was seen of one process."""

    __slots__ = ("broker_epoch", "node", "partitions", "quorum")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.broker_epoch = node.broker.lifecycle.epoch
        self.quorum: Seen = ()
        self.partitions: dict[Partition, Seen] = {}


class NodeChanges:
    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}  # by node

    def take(self, host: Host, node: Node) -> Changes:
        """Since the last call for this node. In a new process, and after a new registration of its broker,
        everything has changed.
        """
        known = self._known.get(host.id)
        broker = node.broker
        if known is None or known.node is not node or known.broker_epoch != broker.lifecycle.epoch:
            known = self._known[host.id] = _Known(node)
        changed = []
        seen = known.partitions
        for partition in broker.partitions.all():
            now = _partition_seen(partition)
            if seen.get(partition) != now:
                seen[partition] = now
                changed.append(partition)
        quorum = _quorum_seen(node)
        if quorum == known.quorum:
            return Changes(changed, has_quorum=False)
        known.quorum = quorum
        return Changes(changed, has_quorum=True)


def _partition_seen(partition: Partition) -> Seen:
    """All that judges of partitions depend on, except what they note of other nodes."""
    log, leader = partition.log, partition.leader
    if log is None:
        return (leader, partition.leader_epoch)
    if leader is None:
        return (
            log,
            log.log_end_offset,
            log.status.error,
            log.partition_producers.state,
            len(log.damages),
            partition.is_offline,
            partition.leader_epoch,
            partition.high_watermark,
        )
    return (
        log,
        log.log_end_offset,
        log.status.error,
        log.partition_producers.state,
        len(log.damages),
        partition.is_offline,
        partition.leader_epoch,
        leader.high_watermark,
        leader,
        leader.partition_epoch,
        leader.maximal_isr,
    )


def _quorum_seen(node: Node) -> Seen:
    """All that judges of the quorum depend on, except what they note of other nodes."""
    metadata = node.controller.metadata
    quorum = metadata.quorum
    log = quorum.log
    return (
        quorum.role,
        quorum.epoch,
        quorum.voted,
        quorum.high_watermark,
        quorum.voters,
        log.end_offset,
        len(log.epochs),
        log.last_epoch,
        metadata.is_settled,
        metadata.deciding_epoch,
    )
