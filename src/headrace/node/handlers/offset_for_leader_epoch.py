"""OffsetForLeaderEpoch, key 23, versions 2–4: where an epoch's records end, so that a client notices
truncation.
"""

from typing import Any

from headrace.base.time import Now
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpoch:
    def __init__(
        self,
        partitions: Partitions,
        access: Access,
    ) -> None:
        self._partitions = partitions
        self._access = access

    def handle(self, request: Request) -> OffsetForLeaderEpochResponse:
        body: OffsetForLeaderEpochRequest = request.body
        is_broker = self._access.shows(request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
        topics = []
        for topic in body.topics:
            known = self._partitions.of_name(topic.topic)
            allowed = is_broker or self._access.allows(
                request, Operation.DESCRIBE, Resource.TOPIC, topic.topic
            )
            results = []
            for asked in topic.partitions:
                if not allowed:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif known is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif (partition := known.replicas.get(asked.partition)) is None:
                    code = known.absence(asked.partition)
                else:
                    results.append(look_up(request.now, partition, asked))
                    continue
                results.append(EpochEndOffset(partition=asked.partition, error_code=code))
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
        return OffsetForLeaderEpochResponse(topics=topics)


def look_up(now: Now, partition: Partition, asked: Any) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    fault = partition.leadership_fault(asked.current_leader_epoch)
    if fault is not None:
        answer.error_code = fault
        return answer
    try:
        answer.leader_epoch, answer.end_offset = partition.opened(now).epoch_end_offset(asked.leader_epoch)
    except FAULTS as raised:
        answer.error_code = code_of(raised)
    return answer
