"""Replicas whose logs end with the same record have the same producer state.

This holds after failovers, restarts from a snapshot, and truncations. A replica whose log begins after the
last record of a producer need not know that producer.
"""

from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes
from headrace.storage.log import PartitionLog

Place = tuple[bytes, int]  # topic id and partition
Known = tuple[tuple[int, ...], ...]  # what is known of each producer
LAST_OFFSET = 3


class ProducerStateAgrees:
    name = "producer_state_agrees"

    def __init__(self) -> None:
        self._ends: dict[tuple[int, Place], tuple[PartitionLog, int]] = {}  # by node
        self._known: dict[
            tuple[Place, int, int], tuple[Known, int]
        ] = {}  # by end and epoch: and whose it was
        self._starts: dict[Place, int] = {}  # the highest start of a log

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
            start = self._starts[place] = max(log.log_start_offset, self._starts.get(place, 0))
            if first != known and behind(first, start) != behind(known, start):
                raise Violation(
                    f"the log of {partition.topic}-{partition.index} ends at {log.log_end_offset} as on node "
                    f"{whose}, which knew {first} of the producers; this one knows {known}"
                )


def behind(known: Known, start: int) -> Known:
    """Of the producers that have records behind the start of the log."""
    return tuple(one for one in known if one[LAST_OFFSET] >= start)
