"""ListOffsets, key 2, versions 1–11: the first and last offset, or the first record at or after a time.

A partition that is named more than once is refused, and told once, as Kafka does: a look-up may have to open
a batch.
"""

from collections import Counter
from typing import Any

from headrace.base.time import Now
from headrace.node.authorization import Operation, Resource
from headrace.node.faults import FAULTS, code_of
from headrace.node.leadership import NO_EPOCH, leadership_fault
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version in which each special timestamp came into being.
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

CONSUMER = -1
TOLD = 0  # instead of how often a partition is named, once that was refused
EPOCH_VERSION_MIN = 4


def handle(node: Node, request: Request) -> ListOffsetsResponse:
    body: ListOffsetsRequest = request.body
    times = Counter(
        (topic.name, asked.partition_index) for topic in body.topics for asked in topic.partitions
    )
    topics = []
    for topic in body.topics:
        partitions = node.partitions.of_name(topic.name)
        allowed = node.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name)
        results = []
        for asked in topic.partitions:
            if not allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (named := times[topic.name, asked.partition_index]) != 1:
                if named == TOLD:
                    continue
                times[topic.name, asked.partition_index] = TOLD
                code = ErrorCode.INVALID_REQUEST
            elif partitions is None or not 0 <= asked.partition_index < len(partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif asked.timestamp < 0 and request.version < _SINCE.get(asked.timestamp, 2**15):
                code = ErrorCode.UNSUPPORTED_VERSION
            else:
                found = look_up(request.now, partitions[asked.partition_index], body, asked)
                if request.version < EPOCH_VERSION_MIN:
                    found.leader_epoch = NO_EPOCH
                results.append(found)
                continue
            results.append(
                ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def look_up(
    now: Now, partition: Partition, body: ListOffsetsRequest, asked: Any
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    fault = leadership_fault(partition, asked.current_leader_epoch)
    if fault is not None:
        answer.error_code = fault
        return answer
    try:
        log = partition.opened(now)
        end = (
            partition.visible_end(body.isolation_level) if body.replica_id == CONSUMER else log.log_end_offset
        )
        if asked.timestamp == LATEST:
            answer.offset = end
            answer.leader_epoch = log.latest_epoch
        elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset = log.log_start_offset
            answer.leader_epoch = log.epoch_at(log.log_start_offset)
        elif asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
            found = (
                log.max_timestamp(end)
                if asked.timestamp == MAX_TIMESTAMP
                else log.offset_for_timestamp(asked.timestamp, end)
            )
            if found is not None:
                answer.offset = found.offset
                answer.timestamp = found.timestamp
                answer.leader_epoch = found.leader_epoch
        # nothing is tiered here: the two remaining questions have the answer "none"
    except FAULTS as raised:
        answer.error_code = code_of(raised)
    return answer
