"""Every appended batch is complete, is in the lineage under its own epoch, and has no epoch that its node
does not know yet. Each batch is checked once, when it was appended.
"""

from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.records.batch import BatchHeader
from headrace.records.errors import BadRecords
from headrace.records.reader import batches
from headrace.simulator.cluster_judges.replica_contents import data_of
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes
from headrace.storage.log import PartitionLog


class AppendedBatchesAreSound:
    name = "appended_batches_are_sound"

    def __init__(self) -> None:
        self._ends: dict[tuple[int, bytes, int], tuple[PartitionLog, int]] = {}  # by node and partition

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        for partition in changes.partitions:
            log = partition.log
            if log is None or log.is_offline or partition.is_offline:
                continue
            key = (host.id, partition.topic_id, partition.index)
            known, start = self._ends.get(key, (None, 0))
            end = log.log_end_offset
            self._ends[key] = (log, end)
            if known is log and end > start:
                self._check(partition, log, start, end)

    @staticmethod
    def _check(partition: Partition, log: PartitionLog, start: int, end: int) -> None:
        for data in data_of(log, start, end):
            try:
                headers = [header for _, header in batches(data)]
            except BadRecords as fault:
                raise Violation(f"it appends to {partition.topic}-{partition.index}: {fault}") from None
            for header in headers:
                if header.base_offset >= start:
                    _check_epoch(partition, log, header)


def _check_epoch(partition: Partition, log: PartitionLog, header: BatchHeader) -> None:
    name = f"{partition.topic}-{partition.index}"
    if header.leader_epoch > partition.leader_epoch:
        raise Violation(
            f"it appends a batch of epoch {header.leader_epoch} to {name}, whose epoch it knows as "
            f"{partition.leader_epoch}"
        )
    epoch = log.epoch_at(header.base_offset)
    if epoch != header.leader_epoch:
        raise Violation(
            f"the batch of epoch {header.leader_epoch} at {header.base_offset} of {name} lies in epoch "
            f"{epoch} of its lineage"
        )
