"""OffsetDelete, key 47, version 0: forget committed offsets of topics that the group does not read now."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class OffsetDelete:
    def __init__(
        self,
        groups: GroupCoordinator,
        topics: ImageTopics,
        access: Access,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._access = access

    def handle(self, request: Request) -> Any:
        body: OffsetDeleteRequest = request.body
        shard = self._groups.asked(request, Operation.DELETE, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        rest: list[OffsetDeleteResponseTopic] = []
        known: list[OffsetDeleteRequestTopic] = []
        for topic in body.topics:
            if not self._access.allows(request, Operation.READ, Resource.TOPIC, topic.name):
                rest.append(refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif self._topics.partition_count(topic.name) is None:
                rest.append(refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                known.append(topic)
        body.topics = known
        decision = shard.machine.delete_offsets(request.now, body)
        if not decision.reply.error_code:
            decision.reply.topics += rest
        return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


def refused_topic(topic: OffsetDeleteRequestTopic, code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
