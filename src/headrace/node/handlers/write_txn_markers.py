"""WriteTxnMarkers, key 27, versions 1–2: the end of a transaction, written into its partitions.

On one node the coordinator writes its markers without asking itself; this is how an administrator ends a
transaction that hangs (`kafka-transactions abort`). Answered once the markers are committed.
"""

from collections.abc import Callable
from typing import Any

from headrace.machines.transactions.effects import WriteMarkers
from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.coordinators.gathered import Gathered
from headrace.node.coordinators.markers import append_marker, is_ended
from headrace.node.faults import FAULTS, code_of
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(node: Node, request: Request) -> Any:
    body: WriteTxnMarkersRequest = request.body
    if not may_end_transactions(node, request):
        return told(body, lambda *_: ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    appended: list[tuple[Partition, int]] = []

    def write(marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
        partitions = node.partitions.of_name(topic) or []
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
            appended.append((partition, append_marker(node, request.now, partition, order)))
        except FAULTS as fault:
            node.partitions.storage_failed(request.now, partition, fault)
            return code_of(fault)
        return ErrorCode.NONE

    reply = told(body, write)
    uncommitted = [(partition, end) for partition, end in appended if partition.leader.high_watermark < end]
    if not uncommitted:
        return reply
    return Gathered(node, request, uncommitted, reply, lambda code: told(body, lambda *_: code))


def may_end_transactions(node: Node, request: Request) -> bool:
    """A coordinator on another broker, or whoever may change the cluster."""
    return any(
        node.allows(request, operation, Resource.CLUSTER, CLUSTER_NAME)
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
