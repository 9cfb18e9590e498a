"""OffsetCommit, key 8, versions 2–10: how far a group has read. Version 10 names topics by id."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

IDS_SINCE = 10


class OffsetCommit:
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
        body: OffsetCommitRequest = request.body
        asked = body.topics

        def refused(code: ErrorCode) -> OffsetCommitResponse:
            return OffsetCommitResponse(topics=[refused_topic(topic, code) for topic in asked])

        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        rest: list[OffsetCommitResponseTopic] = []
        body.topics = []
        for topic in asked:
            code = self._fault_of(request, topic)
            if code is ErrorCode.NONE:
                body.topics.append(topic)
            else:
                rest.append(refused_topic(topic, code))
        if asked and not body.topics:
            return OffsetCommitResponse(topics=rest)
        decision = shard.machine.commit_offsets(request.now, body, request.version)
        decision.reply.topics += rest
        return shard.answer(request, decision, refused)

    def _fault_of(self, request: Request, topic: OffsetCommitRequestTopic) -> ErrorCode:
        """Why nothing can be committed for the topic; fills in the name of one that was named by id."""
        topics = self._topics
        if request.version >= IDS_SINCE:
            name = topics.name_of(topic.topic_id)
            if name is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic.name = name
        if self._access.authorizer is not None and not self._access.allows(
            request, Operation.READ, Resource.TOPIC, topic.name
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topics.partition_count(topic.name) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def refused_topic(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
