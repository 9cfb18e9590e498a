"""WriteTxnMarkers, key 27, versions 1–2: the end of a transaction, written into its partitions.

The coordinator of a transaction sends it to other brokers that lead partitions of the transaction, and an
administrator to end a transaction that hangs (`kafka-transactions abort`). Answered once the markers are
committed.

A coordinator that gets no answer sends its markers again, on another connection, and the first request may
arrive after that. By the second transaction protocol (KIP-890) each end has its own epoch, and a late marker
is recognized. By the first, the producer's next transaction may be open with the same epoch: there the
requests of a coordinator count only in the order in which it has sent them.
"""

from typing import Any, NamedTuple

from headrace.base.time import Instant, Now
from headrace.machines.transactions.effects import WriteMarkers
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.coordinators.markers import COMMIT_TIMEOUT_MS, Markers, Written, is_ended
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.log_directories import LogDirectories
from headrace.node.partitions import Partitions
from headrace.node.peers import CLIENT_ID_PREFIX, TICKET_MAX
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Producers of the first protocol whose last request is remembered: some 200 bytes each.
PRODUCERS_REMEMBERED_MAX = 10_000

Codes = dict[tuple[int, str, int], ErrorCode]  # by producer, topic and partition


class Awaited(NamedTuple):
    """A marker that is not committed yet, and what is answered once it is."""

    written: Written
    place: tuple[int, str, int]
    code: ErrorCode


class WriteTxnMarkers:
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        markers: Markers,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._markers = markers
        self._access = access
        self._waiting = waiting
        self._sent_last: dict[tuple[str, int], tuple[int, int]] = {}  # see `_is_overtaken`

    def handle(self, request: Request) -> Any:
        body: WriteTxnMarkersRequest = request.body
        if not self._may_end_transactions(request):
            return told(body, {}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        request.is_exempt = True
        awaited: list[Awaited] = []

        def write(marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
            known = self._partitions.of_name(topic)
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partition = known.replicas.get(index)
            if partition is None:
                return known.absence(index)
            if not partition.is_led_here:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self._is_overtaken(request, marker):
                return ErrorCode.REQUEST_TIMED_OUT  # to nobody: whoever sent it has sent it again
            order = WriteMarkers(
                transactional_id="",
                producer_id=marker.producer_id,
                epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.transaction_result,
                partitions=[(topic, index)],
                transaction_version=marker.transaction_version,
            )
            try:
                if is_ended(request.now, partition, order):
                    # by the same marker, sent before: it need not be committed yet
                    end = partition.opened(request.now).log_end_offset
                    written = Written(partition, partition.leader_epoch, end)
                    code = ErrorCode.INVALID_PRODUCER_EPOCH
                else:
                    written = self._markers.append(request.now, partition, order)
                    code = ErrorCode.NONE
            except FAULTS as fault:
                self._directories.storage_failed(request.now, partition, fault)
                return code_of(fault)
            if not written.is_committed:
                awaited.append(Awaited(written, (marker.producer_id, topic, index), code))
            return code

        codes: Codes = {}
        for marker in body.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    codes[marker.producer_id, topic.name, index] = write(marker, topic.name, index)
        if not awaited:
            return told(body, codes)
        return MarkersAwaited(self._waiting, request, body, codes, awaited)

    def _is_overtaken(self, request: Request, marker: WritableTxnMarker) -> bool:
        """Whether the coordinator has sent a later request about this producer, which has been served. A node
        numbers its requests; after a restart its coordinators have other epochs.
        """
        sender = request.client_id
        if marker.transaction_version >= 2 or sender is None or not sender.startswith(CLIENT_ID_PREFIX):
            return False
        number = request.correlation_id
        key = (sender, marker.producer_id)
        epoch_before, number_before = self._sent_last.get(key, (-1, 0))
        if marker.coordinator_epoch < epoch_before:
            return True
        if marker.coordinator_epoch == epoch_before:
            ahead_by = (number - number_before) % TICKET_MAX  # numbers begin at 1 again at some time
            if ahead_by > TICKET_MAX // 2:
                return True
        self._sent_last[key] = (marker.coordinator_epoch, number)
        if len(self._sent_last) > PRODUCERS_REMEMBERED_MAX:
            del self._sent_last[next(iter(self._sent_last))]
        return False

    def _may_end_transactions(self, request: Request) -> bool:
        """Whether the client is a coordinator on another broker, or is authorized to change the cluster."""
        access = self._access
        return access.shows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME) or access.allows(
            request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
        )


class MarkersAwaited(Parked):
    """Markers that are not committed yet. A partition that is led elsewhere meanwhile is written there."""

    __slots__ = ("_awaited", "_body", "_codes")

    def __init__(
        self,
        waiting: Waiting,
        request: Request,
        body: WriteTxnMarkersRequest,
        codes: Codes,
        awaited: list[Awaited],
    ) -> None:
        super().__init__(waiting, request)
        self._body = body
        self._codes = codes
        self._awaited = awaited
        for one in awaited:
            self.wait_for(one.written.partition)

    def deadline(self) -> Instant:
        return self.request.now.after_ms(COMMIT_TIMEOUT_MS)

    def reply(self, now: Now, *, is_expired: bool) -> WriteTxnMarkersResponse | None:
        uncommitted: list[Awaited] = []
        for one in self._awaited:
            written = one.written
            if written.is_lost:
                self._codes[one.place] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif written.partition.is_offline:
                self._codes[one.place] = ErrorCode.KAFKA_STORAGE_ERROR
            elif not written.is_committed:
                self._codes[one.place] = ErrorCode.REQUEST_TIMED_OUT
                uncommitted.append(one)
            else:
                self._codes[one.place] = one.code
        self._awaited = uncommitted
        return None if uncommitted and not is_expired else told(self._body, self._codes)


def told(
    body: WriteTxnMarkersRequest, codes: Codes, otherwise: ErrorCode = ErrorCode.NONE
) -> WriteTxnMarkersResponse:
    """What was asked for, with a code for each partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=codes.get((marker.producer_id, topic.name, index), otherwise),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ]
    )
