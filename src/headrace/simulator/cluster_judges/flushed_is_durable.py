"""Everything that a replica counts as flushed is on its disk, and would survive the loss of its host.

With flush.messages=1 the promises of a replica to its leader, and of a leader to its clients, depend on this.
"""

from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.records.errors import CorruptBatch, UnsupportedMagic
from headrace.records.reader import batches
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk

LOG = ".log"
FILE_BYTES_MAX = 1 << 30


class FlushedIsDurable:
    name = "flushed_is_durable"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, bytes, int], tuple[PartitionLog, int]] = {}  # by node and partition

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        for partition in changes.partitions:
            log = partition.log
            if log is None or partition.is_offline or log.is_offline or partition.is_deleted:
                continue
            key = (host.id, partition.topic_id, partition.index)
            state = (log, log.flushed_offset)
            # an end that is not beyond the start says of no record and no file that it was flushed
            if self._seen.get(key) == state or log.flushed_offset <= log.log_start_offset:
                continue
            self._seen[key] = state
            self._check(host.stored[partition.directory], partition, log)

    @staticmethod
    def _check(disk: MemoryDisk, partition: Partition, log: PartitionLog) -> None:
        end = log.flushed_offset
        for name in disk.list(log.directory):
            if not name.endswith(LOG) or int(name[: -len(LOG)]) >= end:
                continue
            path = f"{log.directory}/{name}"
            live, durable = disk.open(path).read(0, FILE_BYTES_MAX), disk.durable(path)
            if live != durable and (lost := first_lost(live, durable, end)) >= 0:
                raise Violation(
                    f"{partition.topic}-{partition.index} counts as flushed up to {end}, but of {name} "
                    f"nothing from {lost} on is on the disk"
                )


def first_lost(live: bytes, durable: bytes, end: int) -> int:
    """The first offset below the end that is not the same in both files; -1: there is none."""
    try:
        for position, header in batches(live, check=False):
            after = position + header.size
            if header.base_offset >= end:
                break
            if live[position:after] != durable[position:after]:
                return header.base_offset
    except (CorruptBatch, UnsupportedMagic):
        pass  # a bit has flipped since
    return -1
