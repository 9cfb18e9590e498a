"""End markers of transactions: written into every partition that a transaction touched.

A transaction is complete once all its markers are below the high watermark of their partitions. The markers
of partitions that this broker leads are written directly; the leaders of the others are asked with
WriteTxnMarkers, and answer once the markers are committed there. Whatever fails is tried again, at the
partition's leader of that moment: if a disk is full, after a second; if a directory is offline, the next
start finishes the transaction. A topic that was deleted needs no marker.

Before every attempt the coordinator is asked whether the order is still valid. Producers of the first
protocol use one epoch for all their transactions: a late marker would end the producer's next transaction.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import NO_LEADER
from headrace.node.commit_queue import is_led_in
from headrace.node.coordinators.other_brokers import OtherBrokers
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.peers import Unanswered
from headrace.node.ports import Act, Ports
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Waiter
from headrace.protocol.errors import ErrorCode
from headrace.records.builder import end_marker
from headrace.storage.errors import CoordinatorFenced, StaleProducerEpoch, StorageError

if TYPE_CHECKING:
    from headrace.machines.transactions.effects import WriteMarkers
    from headrace.node.coordinators.shard import Shard
    from headrace.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

LANE = "markers"
# How long the leader of a partition waits for the commit of a marker before it answers that it is not
# committed yet, and how long its answer is awaited.
COMMIT_TIMEOUT_MS = 10_000
ANSWER_TIMEOUT_MS = 15_000

RETRY_MS = 1_000  # after a failed disk here
RETRY_ELSEWHERE_MS = 50  # and twice as long each time, up to RETRY_MS

# A marker takes some 20 µs: a turn takes some milliseconds. Between turns whoever else is ready has one; a
# deadline that is over already would come without that.
MARKERS_PER_TURN = 250
PAUSE_SECONDS = 0.000_1
# More orders than that are begun after the decision that gave them has been answered.
ORDERS_AT_ONCE = 500

Place = tuple[str, int]  # topic and partition


class MarkerAppended(Protocol):
    def __call__(self, partition: Partition, producer_id: int, is_commit: bool, /) -> None: ...


class Written(NamedTuple):
    """A marker in a partition that this broker leads, and what has to be committed."""

    partition: Partition
    epoch: int  # of its leader
    end: int

    @property
    def is_committed(self) -> bool:
        return self.partition.high_watermark >= self.end

    @property
    def is_lost(self) -> bool:
        """Whether the marker may have been overwritten by another leader."""
        return not is_led_in(self.partition, self.epoch)


class Markers:
    """Writes end markers for the coordinators of transactions and of sinks, and for administrators."""

    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        settings: LiveSettings,
        ports: Ports,
        appended: MarkerAppended,
    ) -> None:
        self.broker_id = settings.current.node_id
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._ports = ports
        self._appended = appended  # called with each marker: offsets that were committed inside count now
        self._others: OtherBrokers[MarkerElsewhere] = OtherBrokers(
            LANE, ANSWER_TIMEOUT_MS, question, answered, metadata, settings, ports
        )

    def write(self, now: Now, shard: "Shard[Any]", orders: "Sequence[WriteMarkers]") -> None:
        """Carries out the orders of one decision of a coordinator's machine, and reports to it when all
        markers of an order are written.

        An order is dropped if the machine was rebuilt from the log: the new machine gives its own order.
        """
        OrdersUnderWay(self, shard, orders, self._ports).begin(now)

    def begin(self, now: Now, order: "WriteMarkers", is_wanted: Callable[[], bool], then: Act) -> None:
        """Writes the markers of one order; `then` is called when all are committed."""
        MarkersUnderWay(
            self, order, is_wanted, then, self._partitions, self._directories, self._metadata, self._ports
        ).expired(now)

    def append(self, now: Now, partition: Partition, markers: "WriteMarkers") -> Written:
        """Writes the end of the transaction into one partition that this broker leads."""
        batch = end_marker(
            committed=markers.is_commit,
            coordinator_epoch=markers.coordinator_epoch,
            producer_id=markers.producer_id,
            producer_epoch=markers.epoch,
            timestamp=now.wall_ms,
        )
        appended = partition.append(memoryview(bytearray(batch)), now, from_client=False)
        self._appended(partition, markers.producer_id, markers.is_commit)
        return Written(partition, partition.leader_epoch, appended.last_offset + 1)

    def ask(self, broker: int, marker: "MarkerElsewhere") -> None:
        """Asks the leader of the partition, another broker, to write the marker."""
        self._others.ask(broker, marker)


class OrdersUnderWay:
    """The orders of one decision, of which a sink's may have one for each of ten thousand tasks. Some are
    begun in each turn, so that other requests are served in between. Those of one id that are written when a
    turn ends, or later at the same time, are reported together.
    """

    __slots__ = (
        "_begun",
        "_deadlines",
        "_is_due",
        "_is_turn",
        "_lifecycle",
        "_machine",
        "_markers",
        "_orders",
        "_shard",
        "_written",
        "is_done",
    )

    def __init__(
        self, markers: Markers, shard: "Shard[Any]", orders: "Sequence[WriteMarkers]", ports: Ports
    ) -> None:
        self._markers = markers
        self._shard = shard
        self._machine = shard.current
        self._orders = orders
        self._deadlines = ports.deadlines
        self._lifecycle = ports.lifecycle
        self._begun = 0  # so many of the orders
        self._written: list[WriteMarkers] = []  # and not reported
        self._is_turn = False
        self._is_due = False  # it is among the deadlines
        self.is_done = False

    def begin(self, now: Now) -> None:
        if len(self._orders) > ORDERS_AT_ONCE:
            self._go_on(now)  # the decision alone was work enough for this call
        else:
            self.expired(now)

    def expired(self, now: Now) -> None:
        """A turn."""
        self._is_due = False
        if self._lifecycle.is_stopping or self._shard.current is not self._machine:
            return  # another machine gives orders of its own
        self._is_turn = True
        try:
            self._begin_some(now)
            self._report(now)
        finally:  # a mistake in one must not keep the others from being written and reported
            self._is_turn = False
            if self._begun < len(self._orders) or self._written:
                self._go_on(now)

    def _begin_some(self, now: Now) -> None:
        left = MARKERS_PER_TURN
        while left > 0 and self._begun < len(self._orders):
            order = self._orders[self._begun]
            self._begun += 1
            left -= 1 + len(order.partitions)
            self._markers.begin(
                now, order, partial(is_wanted, self._shard, order), partial(self._order_written, order)
            )

    def _order_written(self, order: "WriteMarkers", now: Now) -> None:
        self._written.append(order)
        if self._is_turn:
            return
        if len(self._orders) == 1:
            self._report(now)
        else:
            self._go_on(now)  # the others may follow at once

    def _report(self, now: Now) -> None:
        by_id: dict[str, list[WriteMarkers]] = {}
        for order in self._written:
            by_id.setdefault(order.transactional_id, []).append(order)
        self._written = []
        for together in by_id.values():
            report_written(now, self._shard, together)

    def _go_on(self, now: Now) -> None:
        if not self._is_due:
            self._is_due = True
            self._deadlines.add(Instant(now.mono + PAUSE_SECONDS), self)


def is_wanted(shard: "Shard[Any]", order: "WriteMarkers") -> bool:
    return shard.current is not None and shard.current.is_writing(order)


def report_written(now: Now, shard: "Shard[Any]", orders: "Sequence[WriteMarkers]") -> None:
    """Tells the machine that all markers of these orders are written, which have the same id."""
    if not any(is_wanted(shard, order) for order in orders):
        return
    decision = shard.decide(now, orders[0].transactional_id, shard.machine.markers_written, *orders)
    if isinstance(decision, ErrorCode):
        shard.postponed.add(now, orders[0], partial(report_written, shard=shard, orders=orders))
    else:
        shard.carry_out(now, decision)


class MarkersUnderWay(Waiter):
    """The markers of one transaction: those to be written, those that wait to be committed, and those that
    other brokers were asked for.
    """

    __slots__ = (
        "_asked",
        "_deadlines",
        "_directories",
        "_is_due",
        "_is_wanted",
        "_lifecycle",
        "_markers",
        "_metadata",
        "_partitions",
        "_reports",
        "_retry_ms",
        "_then",
        "_unwritten",
        "_written",
        "order",
    )

    def __init__(
        self,
        markers: Markers,
        order: "WriteMarkers",
        is_wanted: Callable[[], bool],
        then: Act,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        ports: Ports,
    ) -> None:
        super().__init__()
        self._markers = markers
        self.order = order
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._is_wanted = is_wanted
        self._then = then  # told when all are committed
        self._unwritten: list[Place] = list(order.partitions)
        self._asked: set[Place] = set()
        self._written: list[Written] = []
        self._retry_ms = RETRY_ELSEWHERE_MS  # after the next failure at another broker
        self._is_due = False  # it is among the deadlines

    def expired(self, now: Now) -> None:
        """Write what is not written yet."""
        self._is_due = False
        if self._lifecycle.is_stopping or not self._is_wanted():
            self.forget()  # after a stop the next start writes them
            return
        unwritten, self._unwritten = self._unwritten, []
        retry_ms: int | None = None
        for place in unwritten:
            topic, index = place
            partition = self._partitions.at(topic, index)
            if partition is not None and partition.is_led_here:
                if partition.is_offline or not self._write(now, partition):
                    self._unwritten.append(place)
                    retry_ms = RETRY_MS
            elif (leader := self._leader(place)) is not None:
                if leader == NO_LEADER:
                    self._unwritten.append(place)
                    retry_ms = retry_ms or self._next_pause_ms()
                else:
                    self._asked.add(place)
                    self._markers.ask(leader, MarkerElsewhere(self, place))
        if retry_ms is not None:
            self._retry(now, retry_ms)
        self.woken(now)

    def _leader(self, place: Place) -> int | None:
        """Another broker, or NO_LEADER; None: the topic was deleted."""
        topic = self._metadata.image.topics.get(place[0])
        partition = topic.partitions.get(place[1]) if topic is not None else None
        if partition is None:
            return None
        return NO_LEADER if partition.leader == self._markers.broker_id else partition.leader

    def _next_pause_ms(self) -> int:
        pause_ms = self._retry_ms
        self._retry_ms = min(2 * pause_ms, RETRY_MS)
        return pause_ms

    def _retry(self, now: Now, pause_ms: int) -> None:
        if not self._is_due:
            self._is_due = True
            self._deadlines.add(now.after_ms(pause_ms), self)

    def _write(self, now: Now, partition: Partition) -> bool:
        """Whether this partition needs nothing more than time."""
        try:
            if is_ended(now, partition, self.order):
                # by a coordinator that was made again since: its marker need not be committed yet
                end = partition.opened(now).log_end_offset
                self._written.append(Written(partition, partition.leader_epoch, end))
            else:
                self._written.append(self._markers.append(now, partition, self.order))
        except (StaleProducerEpoch, CoordinatorFenced) as fault:
            self._report_refused((partition.topic, partition.index), str(fault))
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            return False
        return True

    def _report_refused(self, place: Place, error: str) -> None:
        """Somebody newer has ended this producer's transaction there already."""
        self._reports.report(
            "warning",
            "end_marker_refused",
            partition=f"{place[0]}-{place[1]}",
            transactional_id=self.order.transactional_id,
            error=error,
        )

    def answered(self, now: Now, place: Place, code: int | Unanswered) -> None:
        """Another broker was asked for a marker. What it did not confirm is asked again, maybe elsewhere."""
        self._asked.discard(place)
        if self.is_done:
            return
        if code in FENCED:
            # an end by version 2 that was asked for twice, too
            if self.order.transaction_version < 2 or code != ErrorCode.INVALID_PRODUCER_EPOCH:
                self._report_refused(place, ErrorCode(code).name)
        elif code != ErrorCode.NONE:
            self._unwritten.append(place)
            self._retry(now, self._next_pause_ms())
        self.woken(now)

    def woken(self, now: Now) -> None:
        uncommitted: list[Written] = []
        for written in self._written:
            partition = written.partition
            if written.is_lost:
                if not partition.is_deleted:
                    self._unwritten.append((partition.topic, partition.index))
            elif not written.is_committed:
                uncommitted.append(written)
        self._written = uncommitted
        self.leave()
        for written in uncommitted:
            self.wait_for(written.partition)
        if self._unwritten:
            self._retry(now, self._retry_ms)
        elif not uncommitted and not self._asked and not self.is_done:
            self.forget()
            self._then(now)


class MarkerElsewhere(NamedTuple):
    """A marker that another broker, the leader of its partition, has to write."""

    under_way: MarkersUnderWay
    place: Place


# Who says this has the marker already, or one of a newer producer or coordinator.
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


def question(markers: list[MarkerElsewhere]) -> "WriteTxnMarkersRequest":
    from headrace.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    topics: dict[MarkersUnderWay, dict[str, list[int]]] = {}
    for under_way, (topic, index) in markers:
        topics.setdefault(under_way, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=under_way.order.producer_id,
                producer_epoch=under_way.order.epoch,
                transaction_result=under_way.order.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in named.items()
                ],
                coordinator_epoch=under_way.order.coordinator_epoch,
                transaction_version=under_way.order.transaction_version,
            )
            for under_way, named in topics.items()
        ]
    )


def answered(
    now: Now, markers: list[MarkerElsewhere], answer: "WriteTxnMarkersResponse | Unanswered"
) -> None:
    codes: dict[tuple[int, str, int], int] = {}
    if not isinstance(answer, Unanswered):
        codes = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in answer.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
    for under_way, place in markers:
        code = codes.get((under_way.order.producer_id, *place), Unanswered.LOST)
        under_way.answered(now, place, code)


def is_ended(now: Now, partition: Partition, markers: "WriteMarkers") -> bool:
    """Whether the transaction has ended in this partition. From version 2 on each end has its own epoch
    (KIP-890): if the partition has seen that epoch, the marker was written before, and an open transaction
    there is the producer's next one.
    """
    if markers.transaction_version < 2:
        return False
    known = partition.opened(now).producer_state(now.wall_ms).entries.get(markers.producer_id)
    return known is not None and known.epoch >= markers.epoch
