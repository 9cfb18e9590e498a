"""An epoch of the quorum, or of a partition, has one leader, and no node returns to an earlier epoch."""

from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes


class OneLeaderPerEpoch:
    name = "one_leader_per_epoch"

    def __init__(self) -> None:
        self._quorum: dict[int, int] = {}  # epoch: leader
        self._partitions: dict[tuple[bytes, int, int], int] = {}  # topic id, partition, epoch: leader

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        metadata = node.controller.metadata
        if changes.has_quorum and metadata.leader_id == host.id:
            first = self._quorum.setdefault(metadata.leader_epoch, host.id)
            if first != host.id:
                raise Violation(f"it leads the quorum in epoch {metadata.leader_epoch}, which {first} led")
        for partition in changes.partitions:
            if not partition.is_led_here:
                continue
            key = (partition.topic_id, partition.index, partition.leader_epoch)
            first = self._partitions.setdefault(key, host.id)
            if first != host.id:
                raise Violation(
                    f"it leads {partition.topic}-{partition.index} in epoch {partition.leader_epoch}, which "
                    f"{first} led"
                )
