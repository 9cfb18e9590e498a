"""SplitRanges, key 30001, version 0: offsets that cut ranges into parts of about so many bytes.

Told from segment bases and offset indexes: no batch is read.
"""

from headrace.base.limits import SPLITS_PER_RANGE_MAX
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.partitions import Partitions, TopicReplicas
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.split_ranges import (
    SplitPartition,
    SplitPartitionResponse,
    SplitRangesRequest,
    SplitRangesResponse,
    SplitTopicResponse,
)


class SplitRanges:
    def __init__(
        self,
        partitions: Partitions,
        access: Access,
    ) -> None:
        self._partitions = partitions
        self._access = access

    def handle(self, request: Request) -> SplitRangesResponse:
        body: SplitRangesRequest = request.body
        topics = []
        for topic in body.topics:
            partitions = self._partitions.of_id(topic.topic_id)
            results = [self._answer(request, partitions, asked) for asked in topic.partitions]
            topics.append(SplitTopicResponse(topic_id=topic.topic_id, partitions=results))
        return SplitRangesResponse(topics=topics)

    def _answer(
        self, request: Request, topic: TopicReplicas | None, asked: SplitPartition
    ) -> SplitPartitionResponse:
        answer = SplitPartitionResponse(partition_index=asked.partition_index, split_offsets=[])
        fault = self._fault(request, topic, asked)
        if fault is not None:
            answer.error_code = fault
            return answer
        assert topic is not None
        try:
            log = topic.replicas[asked.partition_index].opened(request.now)
            start = max(asked.start_offset, log.log_start_offset)
            end = min(asked.end_offset, log.log_end_offset)
            answer.log_start_offset = log.log_start_offset
            answer.total_bytes = log.bytes_between(start, end)
            part_bytes = max(asked.bytes_per_split, -(-answer.total_bytes // SPLITS_PER_RANGE_MAX))
            answer.split_offsets = log.split_offsets(start, end, part_bytes)
        except FAULTS as fault_of_disk:
            answer.error_code = code_of(fault_of_disk)
        return answer

    def _fault(
        self, request: Request, topic: TopicReplicas | None, asked: SplitPartition
    ) -> ErrorCode | None:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            return ErrorCode.UNKNOWN_TOPIC_ID  # whether there is one is not told to everybody
        partition = topic.replicas.get(asked.partition_index)
        if partition is None:
            return topic.absence(asked.partition_index)
        if asked.bytes_per_split < 1 or not 0 <= asked.start_offset <= asked.end_offset:
            return ErrorCode.INVALID_REQUEST
        return partition.leadership_fault()
