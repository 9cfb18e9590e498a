"""OffsetFetch, key 9, versions 1–10: what groups have committed. From version 8 on of many groups at once,
from version 10 on with topics named by id.
"""

from typing import Any

from headrace.machines.groups.commits import FetchedTopic, TopicPartitions
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.coordinators.shard import Shard
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_SINCE = 8
IDS_SINCE = 10
NO_OFFSET = -1


class OffsetFetch:
    def __init__(
        self,
        groups: GroupCoordinator,
        topics: ImageTopics,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: OffsetFetchRequest = request.body
        asked = body.groups if request.version >= GROUPS_SINCE else [only_group(body)]
        shards: list[Shard[Any]] = []
        groups = [self._fetched(request, group, body.require_stable, shards) for group in asked]

        def refused(code: ErrorCode) -> OffsetFetchResponse:
            return replied(
                request, [OffsetFetchResponseGroup(group_id=one.group_id, error_code=code) for one in asked]
            )

        return when_all_committed(self._waiting, request, shards, replied(request, groups), refused)

    def _fetched(
        self,
        request: Request,
        group: OffsetFetchRequestGroup,
        require_stable: bool,
        shards: list[Shard[Any]],
    ) -> OffsetFetchResponseGroup:
        """One group's offsets; `shards` gets the one that told them, if they may not be committed."""
        shard = self._groups.asked(request, Operation.DESCRIBE, group.group_id)
        if isinstance(shard, ErrorCode):
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=shard)
        if self._groups.waits_for_group(shard, group.group_id, with_offsets=True):
            shards.append(shard)
        wants_all = group.topics is None
        refused: list[OffsetFetchResponseTopics] = []
        if group.topics is not None:
            known: list[OffsetFetchRequestTopics] = []
            for topic in group.topics:
                code = self._fault_of(request, topic)
                if code is ErrorCode.NONE:
                    known.append(topic)
                else:
                    refused.append(refused_topic(topic, code))
            group.topics = known
        reply = respond(
            group,
            shard.machine.fetch_offsets(
                request.now,
                group.group_id,
                asked(group),
                member_id=group.member_id,
                epoch=group.member_epoch,
                require_stable=require_stable,
            ),
        )
        if reply.error_code:
            return reply
        confirms = self._groups.confirm(request.now, shard, group.group_id) if require_stable else None
        if confirms:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=confirms)
        if confirms is not None:
            shards.append(shard)
        if wants_all and self._access.rights is not None:
            reply.topics = [
                topic
                for topic in reply.topics
                if self._access.shows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name)
            ]
        if request.version >= IDS_SINCE:
            self._name_by_id(reply)
        reply.topics += refused
        return reply

    def _fault_of(self, request: Request, topic: OffsetFetchRequestTopics) -> ErrorCode:
        if request.version >= IDS_SINCE:
            name = self._topics.name_of(topic.topic_id)
            if name is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic.name = name
        if not self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    def _name_by_id(self, reply: OffsetFetchResponseGroup) -> None:
        """Topics that are gone have no id, and nothing to read either: they are left out."""
        named: list[OffsetFetchResponseTopics] = []
        for topic in reply.topics:
            topic_id = self._topics.id_of(topic.name)
            if topic_id is not None:
                topic.topic_id = topic_id
                named.append(topic)
        reply.topics = named


def asked(group: OffsetFetchRequestGroup) -> list[TopicPartitions] | None:
    """None: all topics."""
    if group.topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in group.topics]


def respond(
    group: OffsetFetchRequestGroup, reply: list[FetchedTopic] | ErrorCode
) -> OffsetFetchResponseGroup:
    if isinstance(reply, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=reply)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=error,
                    )
                    for partition, offset, leader_epoch, metadata, error in offsets
                ],
            )
            for name, offsets in reply
        ],
    )


def only_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group of an old request, in the new form."""
    return OffsetFetchRequestGroup(
        group_id=body.group_id,
        topics=None
        if body.topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ],
    )


def replied(request: Request, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if request.version >= GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code:
        # version 1 can tell an error only with each partition; of later ones aiokafka looks nowhere else,
        # and would take silence for "nothing committed" and begin at one of the ends
        body: OffsetFetchRequest = request.body
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=group.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in body.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def refused_topic(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )
