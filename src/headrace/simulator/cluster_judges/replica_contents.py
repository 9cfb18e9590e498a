"""Contents of a replica's log, as its node would serve them."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from headrace.node.partition import Partition
from headrace.records.reader import batches, read_rows
from headrace.simulator.cluster import Cluster
from headrace.simulator.history import PartitionKey, Violation
from headrace.storage.errors import DamagedBatch
from headrace.storage.log import PartitionLog

BYTES_MAX = 1 << 30


class BatchSeen(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    crc: int


def batches_between(log: PartitionLog, start: int, end: int) -> Iterator[BatchSeen]:
    """The batches of a log that lie whole between two offsets."""
    for data in data_of(log, start, end):
        for _, header in batches(data):
            if header.base_offset >= start and header.next_offset <= end:
                yield BatchSeen(header.base_offset, header.next_offset, header.leader_epoch, header.crc)


def rows_of(partition: Partition) -> list[tuple[int, bytes]]:
    """Offset and value of each record below the high watermark."""
    log = partition.log
    if log is None:
        return []
    return [
        row
        for data in data_of(log, log.log_start_offset, partition.high_watermark)
        for at, header in batches(data)
        if not header.is_control
        for row in rows_in(data[at : at + header.size])
    ]


@lru_cache(4096)  # the same batches are looked at again and again, on each replica
def rows_in(batch: bytes) -> tuple[tuple[int, bytes], ...]:
    """Offset and value of each record of a batch."""
    ((at, header),) = batches(batch)
    return tuple((row[0], row[3] or b"") for row in read_rows(batch, at, header))


def data_of(log: PartitionLog, start: int, end: int) -> Iterator[bytes]:
    """The bytes of the log from one offset to another, in pieces."""
    position = max(start, log.log_start_offset)
    while position < end:
        try:
            span = log.read(position, max_bytes=BYTES_MAX, limit_offset=end, at_least_one=True)
        except DamagedBatch:
            return  # the node knows it, and gets it from others
        if span is None or not span.size:
            return
        data = span.read()
        yield data
        *_, last = (header for _, header in batches(data))
        position = last.next_offset


def contents_of(cluster: Cluster, key: PartitionKey) -> tuple[int, list[tuple[int, bytes]]]:
    """Log start and records of a partition. All replicas have the same ones, as far as each knows that they
    are committed; what was deleted may be left on some of them.
    """
    replicas = [
        (number, partition, partition.log.log_start_offset)
        for number, node in cluster.nodes().items()
        if (partition := node.broker.partitions.at(key.topic, key.number)) is not None
        and partition.log is not None
    ]
    start = max((start for _, _, start in replicas), default=0)
    longest: tuple[int, list[tuple[int, bytes]]] = (0, [])
    for number, partition, _ in replicas:
        rows = [row for row in rows_of(partition) if row[0] >= start]
        known = longest[1]
        both = min(len(rows), len(known))
        if rows[:both] != known[:both]:
            raise Violation(f"{key}: replicas {longest[0]} and {number} differ in their first {both} records")
        if len(rows) >= len(known):
            longest = (number, rows)
    return start, longest[1]
