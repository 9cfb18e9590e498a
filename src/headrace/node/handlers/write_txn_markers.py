"""WriteTxnMarkers, key 27, versions 1–2: the end of a transaction, written into its partitions.

On one node the coordinator writes its markers without asking itself; this is how an administrator ends a
transaction that hangs (`kafka-transactions abort`). Answered once the markers are committed.
"""

from collections.abc import Callable
from typing import Any

from headrace.machines.transactions.effects import WriteMarkers
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.coordinators.markers import Markers, is_ended
from headrace.node.coordinators.shard import Gathered
from headrace.node.faults import FAULTS, code_of
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


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

    def handle(self, request: Request) -> Any:
        body: WriteTxnMarkersRequest = request.body
        if not self._may_end_transactions(request):
            return told(body, lambda *_: ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        appended: list[tuple[Partition, int]] = []

        def write(marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
            partitions = self._partitions.of_name(topic) or []
            if not 0 <= index < len(partitions):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partition = partitions[index]
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
                    return ErrorCode.INVALID_PRODUCER_EPOCH
                appended.append((partition, self._markers.append(request.now, partition, order)))
            except FAULTS as fault:
                self._directories.storage_failed(request.now, partition, fault)
                return code_of(fault)
            return ErrorCode.NONE

        reply = told(body, write)
        uncommitted = [
            (partition, end) for partition, end in appended if partition.leader.high_watermark < end
        ]
        if not uncommitted:
            return reply
        return Gathered(self._waiting, request, uncommitted, reply, lambda code: told(body, lambda *_: code))

    def _may_end_transactions(self, request: Request) -> bool:
        """A coordinator on another broker, or whoever may change the cluster."""
        return any(
            self._access.allows(request, operation, Resource.CLUSTER, CLUSTER_NAME)
            for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
        )


def told(
    body: WriteTxnMarkersRequest, code: Callable[[WritableTxnMarker, str, int], ErrorCode]
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
                                partition_index=index, error_code=code(marker, topic.name, index)
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
