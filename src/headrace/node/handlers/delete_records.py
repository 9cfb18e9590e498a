"""DeleteRecords, key 21, versions 0–2: everything before an offset is gone, and the log starts there.

Offset -1 means up to the high watermark. The answer tells where each log starts now.
"""

from headrace.base.time import Now
from headrace.node.authorization import Operation, Resource
from headrace.node.faults import FAULTS, code_of
from headrace.node.handlers.metadata import INTERNAL_TOPICS
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(node: Node, request: Request) -> DeleteRecordsResponse:
    body: DeleteRecordsRequest = request.body
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=topic_results(node, request, topic))
            for topic in body.topics
        ]
    )


def topic_results(
    node: Node, request: Request, topic: DeleteRecordsTopic
) -> list[DeleteRecordsPartitionResult]:
    asked = {partition.partition_index: partition for partition in topic.partitions}  # the last one counts
    code = ErrorCode.NONE
    partitions = node.partitions.of_name(topic.name)
    if not node.allows(request, Operation.DELETE, Resource.TOPIC, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic.name in INTERNAL_TOPICS:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION  # coordinators rebuild their state from all of it
    elif partitions is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if code is not ErrorCode.NONE or partitions is None:
        return [failed(index, code) for index in asked]
    return [
        delete(node, request.now, partitions[index], partition)
        if 0 <= index < len(partitions)
        else failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for index, partition in asked.items()
    ]


def delete(
    node: Node, now: Now, partition: Partition, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    policy = partition.config.cleanup_policy
    if policy and "delete" not in policy:
        return failed(partition.index, ErrorCode.POLICY_VIOLATION)
    try:
        log = partition.opened(now)
        high_watermark = partition.leader.high_watermark
        offset = high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= high_watermark:
            return failed(partition.index, ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > log.log_start_offset:
            doomed = log.advance_log_start(offset, now.wall_ms)
            if doomed:
                node.housekeeping.remove_later(now, partition, doomed)
            node.wake_waiters(partition)  # a fetch that waits below the new start learns of it
    except FAULTS as fault:
        return failed(partition.index, code_of(fault))
    return DeleteRecordsPartitionResult(partition_index=partition.index, low_watermark=log.log_start_offset)


def failed(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
