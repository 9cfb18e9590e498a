"""Writing the end of a transaction into every partition that it touched.

A transaction is complete once all its markers are below the high watermark of their partitions. Where a disk
is full the marker is tried again after a while; where a directory is offline the next start finishes the
transaction. A topic that is gone needs no marker.

Before every attempt the coordinator is asked whether the order still counts. Producers of the first protocol
use one epoch for all their transactions: a late marker would end a transaction that has begun since.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.node.parking import Waiter
from headrace.node.partition import Partition
from headrace.records.builder import end_marker
from headrace.storage.errors import CoordinatorFenced, StaleProducerEpoch, StorageError

if TYPE_CHECKING:
    from headrace.machines.transactions.effects import WriteMarkers
    from headrace.node.coordinators.shard import Shard
    from headrace.node.node import Node

RETRY_MS = 1_000


def write_markers(node: "Node", now: Now, shard: "Shard", order: "WriteMarkers") -> None:
    """Carries out the order of a coordinator's machine, and tells it when all is done.

    The order is dropped when the machine was made again from the log: that one has given its own.
    """

    def is_wanted() -> bool:
        return shard.machine is not None and shard.machine.is_writing(order)

    def written(now: Now) -> None:
        if shard.machine is not None:
            shard.carry_out(now, shard.machine.markers_written(now, order))

    MarkersUnderWay(node, order, is_wanted, written).expired(now)


class MarkersUnderWay(Waiter):
    """The markers of one transaction: those to be written, and those waiting to be committed."""

    __slots__ = ("_appended", "_is_wanted", "_markers", "_node", "_then", "_unwritten")

    def __init__(
        self,
        node: "Node",
        markers: "WriteMarkers",
        is_wanted: Callable[[], bool],
        then: Callable[[Now], None],
    ) -> None:
        super().__init__()
        self._node = node
        self._markers = markers
        self._is_wanted = is_wanted
        self._then = then  # told when all are committed
        self._unwritten = list(markers.partitions)
        self._appended: list[tuple[Partition, int]] = []  # and the end offset that has to be committed

    def expired(self, now: Now) -> None:
        """Write what is not written yet."""
        if self._node.is_stopping or not self._is_wanted():
            self.forget()  # after a stop the next start writes them
            return
        left: list[tuple[str, int]] = []
        for topic, index in self._unwritten:
            partition = self._partition(topic, index)
            if partition is None:
                continue
            if partition.is_offline or not self._write(now, partition):
                left.append((topic, index))
        self._unwritten = left
        if left:
            self._node.deadlines.add(now.after_ms(RETRY_MS), self)
        self.woken(now)

    def _partition(self, topic: str, index: int) -> Partition | None:
        partitions = self._node.partitions.of_name(topic)
        return partitions[index] if partitions is not None and index < len(partitions) else None

    def _write(self, now: Now, partition: Partition) -> bool:
        """Whether this partition needs nothing more than time."""
        try:
            if is_ended(now, partition, self._markers):
                return True
            end = append_marker(self._node, now, partition, self._markers)
        except (StaleProducerEpoch, CoordinatorFenced) as fault:
            # somebody newer has ended this producer's transaction here already
            self._node.report(
                "warning",
                "end_marker_refused",
                partition=f"{partition.topic}-{partition.index}",
                transactional_id=self._markers.transactional_id,
                error=str(fault),
            )
            return True
        except StorageError as fault:
            self._node.partitions.storage_failed(now, partition, fault)
            return False
        self._appended.append((partition, end))
        return True

    def woken(self, now: Now) -> None:
        uncommitted = [
            (partition, end)
            for partition, end in self._appended
            if partition.leader.high_watermark < end and not partition.is_deleted
        ]
        self._appended = uncommitted
        self.leave()
        for partition, _ in uncommitted:
            self.wait_for(partition)
        if not uncommitted and not self._unwritten and not self.is_done:
            self.forget()
            self._then(now)


def append_marker(node: "Node", now: Now, partition: Partition, markers: "WriteMarkers") -> int:
    """Writes the end of the transaction into one partition; the offset behind it."""
    batch = end_marker(
        committed=markers.is_commit,
        coordinator_epoch=markers.coordinator_epoch,
        producer_id=markers.producer_id,
        producer_epoch=markers.epoch,
        timestamp=now.wall_ms,
    )
    appended = partition.append(memoryview(bytearray(batch)), now, from_client=False)
    node.groups.marker_appended(partition, markers.producer_id, markers.is_commit)
    return appended.last_offset + 1


def is_ended(now: Now, partition: Partition, markers: "WriteMarkers") -> bool:
    """From version 2 on each end has its own epoch (KIP-890): one that the partition has seen was written
    before, and what is open there now is the producer's next transaction.
    """
    if markers.transaction_version < 2:
        return False
    known = partition.opened(now).producer_state(now.wall_ms).entries.get(markers.producer_id)
    return known is not None and known.epoch >= markers.epoch
