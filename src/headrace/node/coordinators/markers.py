"""Writing the end of a transaction into every partition that it touched.

A transaction is complete once all its markers are below the high watermark of their partitions. Where a disk
is full the marker is tried again after a while; where a directory is offline the next start finishes the
transaction. A topic that is gone needs no marker.

Before every attempt the coordinator is asked whether the order still counts. Producers of the first protocol
use one epoch for all their transactions: a late marker would end a transaction that has begun since.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.time import Now
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.waiting import Waiter
from headrace.records.builder import end_marker
from headrace.storage.errors import CoordinatorFenced, StaleProducerEpoch, StorageError

if TYPE_CHECKING:
    from headrace.machines.transactions.effects import WriteMarkers
    from headrace.node.coordinators.shard import Shard

RETRY_MS = 1_000


class MarkerAppended(Protocol):
    def __call__(self, partition: Partition, producer_id: int, is_commit: bool, /) -> None: ...


class Markers:
    """Writes end markers for the coordinators of transactions and of sinks, and for administrators."""

    def __init__(
        self, partitions: Partitions, directories: LogDirectories, ports: Ports, appended: MarkerAppended
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._ports = ports
        self._appended = appended  # called with each marker: offsets that were committed inside count now

    def write(self, now: Now, shard: "Shard[Any]", order: "WriteMarkers") -> None:
        """Carries out the order of a coordinator's machine, and tells it when all is done.

        The order is dropped when the machine was made again from the log: that one has given its own.
        """

        def is_wanted() -> bool:
            return shard.current is not None and shard.current.is_writing(order)

        def written(now: Now) -> None:
            if shard.current is not None:
                shard.carry_out(now, shard.current.markers_written(now, order))

        under_way = MarkersUnderWay(
            self, order, is_wanted, written, self._partitions, self._directories, self._ports
        )
        under_way.expired(now)

    def append(self, now: Now, partition: Partition, markers: "WriteMarkers") -> int:
        """Writes the end of the transaction into one partition; the offset behind it."""
        batch = end_marker(
            committed=markers.is_commit,
            coordinator_epoch=markers.coordinator_epoch,
            producer_id=markers.producer_id,
            producer_epoch=markers.epoch,
            timestamp=now.wall_ms,
        )
        appended = partition.append(memoryview(bytearray(batch)), now, from_client=False)
        self._appended(partition, markers.producer_id, markers.is_commit)
        return appended.last_offset + 1


class MarkersUnderWay(Waiter):
    """The markers of one transaction: those to be written, and those waiting to be committed."""

    __slots__ = (
        "_appended",
        "_deadlines",
        "_directories",
        "_is_wanted",
        "_lifecycle",
        "_markers",
        "_order",
        "_partitions",
        "_reports",
        "_then",
        "_unwritten",
    )

    def __init__(
        self,
        markers: Markers,
        order: "WriteMarkers",
        is_wanted: Callable[[], bool],
        then: Callable[[Now], None],
        partitions: Partitions,
        directories: LogDirectories,
        ports: Ports,
    ) -> None:
        super().__init__()
        self._markers = markers
        self._order = order
        self._partitions = partitions
        self._directories = directories
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._is_wanted = is_wanted
        self._then = then  # told when all are committed
        self._unwritten = list(order.partitions)
        self._appended: list[tuple[Partition, int]] = []  # and the end offset that has to be committed

    def expired(self, now: Now) -> None:
        """Write what is not written yet."""
        if self._lifecycle.is_stopping or not self._is_wanted():
            self.forget()  # after a stop the next start writes them
            return
        left: list[tuple[str, int]] = []
        for topic, index in self._unwritten:
            partition = self._partitions.at(topic, index)
            if partition is None:
                continue
            if partition.is_offline or not self._write(now, partition):
                left.append((topic, index))
        self._unwritten = left
        if left:
            self._deadlines.add(now.after_ms(RETRY_MS), self)
        self.woken(now)

    def _write(self, now: Now, partition: Partition) -> bool:
        """Whether this partition needs nothing more than time."""
        try:
            if is_ended(now, partition, self._order):
                return True
            end = self._markers.append(now, partition, self._order)
        except (StaleProducerEpoch, CoordinatorFenced) as fault:
            # somebody newer has ended this producer's transaction here already
            self._reports.report(
                "warning",
                "end_marker_refused",
                partition=f"{partition.topic}-{partition.index}",
                transactional_id=self._order.transactional_id,
                error=str(fault),
            )
            return True
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
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


def is_ended(now: Now, partition: Partition, markers: "WriteMarkers") -> bool:
    """From version 2 on each end has its own epoch (KIP-890): one that the partition has seen was written
    before, and what is open there now is the producer's next transaction.
    """
    if markers.transaction_version < 2:
        return False
    known = partition.opened(now).producer_state(now.wall_ms).entries.get(markers.producer_id)
    return known is not None and known.epoch >= markers.epoch
