"""OffsetCommit, key 8, versions 2–10: how far a group has read. Version 10 names topics by id.

The partitions of a topic are columns, in the request and in the response (`protocol/columns.py`).
"""

from typing import Any

from headrace.machines.coordination import Topics
from headrace.machines.groups.group import Committer
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.routes import Request
from headrace.protocol.coordinator_records.offset_commits import TopicColumns
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.notation import ZERO_UUID

EPOCHS_SINCE = 9  # the first version that has member epochs and their errors
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
        offsets = offsets_of(body, self._topics)
        committer = committer_of(body, request.version)
        decision = shard.machine.commit_offsets(request.now, committer, offsets, body.retention_time_ms)
        topics = body.topics
        # a topic beside it that was refused would have to be refused again
        request.is_usual = len(asked) == 1 and len(offsets[0].partitions) == 1

        def respond(codes: list[ErrorCode]) -> OffsetCommitResponse:
            return OffsetCommitResponse(topics=committed_topics(topics, codes) + rest)

        return shard.answer(request, shard.if_writable(request.now, decision), respond, refused)

    def _fault_of(self, request: Request, topic: OffsetCommitRequestTopic) -> ErrorCode:
        """Why nothing can be committed for the topic; fills in the name of one that was named by id."""
        topics = self._topics
        if request.version >= IDS_SINCE:
            name = topics.name_of(topic.topic_id)
            if name is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic.name = name
        if self._access.rights is not None and not self._access.allows(
            request, Operation.READ, Resource.TOPIC, topic.name
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topics.partition_count(topic.name) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def committer_of(body: OffsetCommitRequest, version: int) -> Committer:
    return Committer(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        version >= EPOCHS_SINCE,
    )


def offsets_of(body: OffsetCommitRequest, topics: Topics) -> list[TopicColumns]:
    """Of topics that have a name; those that were named by id have both."""
    columns: list[TopicColumns] = []
    for topic in body.topics:
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID:
            topic_id = topics.id_of(topic.name) or ZERO_UUID
        partitions: Any = topic.partitions  # columns
        columns.append(TopicColumns(topic.name, topic_id, *partitions))
    return columns


def committed_topics(
    topics: list[OffsetCommitRequestTopic], codes: list[ErrorCode]
) -> list[OffsetCommitResponseTopic]:
    """With an error code for each partition of the topics, in their order."""
    made = []
    start = 0
    for topic in topics:
        partitions: Any = topic.partitions  # columns
        stop = start + len(partitions[0])
        made.append(answered_topic(topic, partitions[0], codes[start:stop]))
        start = stop
    return made


def refused_topic(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    partitions: Any = topic.partitions  # columns
    return answered_topic(topic, partitions[0], [code] * len(partitions[0]))


def answered_topic(
    topic: OffsetCommitRequestTopic, partitions: list[int], codes: list[ErrorCode]
) -> OffsetCommitResponseTopic:
    columns: Any = (partitions, codes)
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=columns)
