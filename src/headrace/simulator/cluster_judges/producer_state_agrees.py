"""Replicas whose logs end with the same record know the same of their producers, whatever has become of the
log before: failover, a restart from a snapshot, truncation.
"""

from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes
from headrace.storage.log import PartitionLog

Place = tuple[bytes, int]  # topic id and partition
Known = tuple[tuple[int, ...], ...]  # what is known of each producer


class ProducerStateAgrees:
    name = "producer_state_agrees"

    def __init__(self) -> None:
        self._ends: dict[tuple[int, Place], tuple[PartitionLog, int]] = {}  # by node
        self._known: dict[
            tuple[Place, int, int], tuple[Known, int]
        ] = {}  # by end and epoch: and whose it was

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        for partition in changes.partitions:
            log = partition.log
            if log is None or log.is_offline or partition.is_offline or partition.topic.startswith("__"):
                continue
            state = log.partition_producers.state
            place = (bytes(partition.topic_id), partition.index)
            end = (log, log.log_end_offset)
            if state is None or log.damages or self._ends.get((host.id, place)) == end:
                continue
            self._ends[host.id, place] = end
            known = tuple(
                sorted(
                    (
                        entry.producer_id,
                        entry.epoch,
                        entry.last_sequence,
                        entry.last_offset,
                        entry.transaction_start,
                        entry.coordinator_epoch,
                    )
                    for entry in state
                )
            )
            key = (place, log.log_end_offset, log.epoch_at(log.log_end_offset - 1))
            first, whose = self._known.setdefault(key, (known, host.id))
            if first != known:
                raise Violation(
                    f"the log of {partition.topic}-{partition.index} ends at {log.log_end_offset} as on node "
                    f"{whose}, which knew {first} of the producers; this one knows {known}"
                )
