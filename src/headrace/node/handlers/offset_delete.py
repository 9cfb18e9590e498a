"""OffsetDelete, key 47, version 0: deletes committed offsets of topics to which the group is not
subscribed.
"""

from typing import Any

from headrace.machines.groups.commits import TopicPartitions
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
                rest.append(answered_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif self._topics.partition_count(topic.name) is None:
                rest.append(answered_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                known.append(topic)

        def answered(reply: list[ErrorCode] | ErrorCode) -> OffsetDeleteResponse:
            response = respond(known, reply)
            if not response.error_code:
                response.topics += rest
            return response

        decision = shard.machine.delete_offsets(request.now, body.group_id, asked(known))
        return shard.answer(request, shard.if_writable(request.now, decision), answered, refused)


def asked(topics: list[OffsetDeleteRequestTopic]) -> list[TopicPartitions]:
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in topics]


def respond(
    topics: list[OffsetDeleteRequestTopic], reply: list[ErrorCode] | ErrorCode
) -> OffsetDeleteResponse:
    if isinstance(reply, ErrorCode):
        return refused(reply)
    return OffsetDeleteResponse(
        topics=[answered_topic(topic, code) for topic, code in zip(topics, reply, strict=True)]
    )


def refused(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


def answered_topic(topic: OffsetDeleteRequestTopic, code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
