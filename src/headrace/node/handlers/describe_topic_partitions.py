"""DescribeTopicPartitions, key 75, version 0: topics in the order of their names, page by page.

A page ends after a number of partitions, and its cursor says where the next one begins.
"""

from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import TopicState
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.handlers.metadata import View
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import CommittedReply
from headrace.node.partitions import INTERNAL_TOPICS, Partitions
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class DescribeTopicPartitions:
    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        directories: LogDirectories,
        metadata: MetadataLog,
        settings: LiveSettings,
        access: Access,
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._directories = directories
        self._metadata = metadata
        self._settings = settings
        self._access = access

    def handle(self, request: Request) -> DescribeTopicPartitionsResponse | CommittedReply:
        body: DescribeTopicPartitionsRequest = request.body
        asked = {topic.name for topic in body.topics}
        cursor = body.cursor
        if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
            return DescribeTopicPartitionsResponse(
                topics=[failed(name, ErrorCode.INVALID_REQUEST) for name in sorted(asked)]
            )
        start = cursor.topic_name if cursor is not None else ""
        names = sorted(name for name in asked or self._metadata.image.topics if name >= start)
        room = max(
            1, min(body.response_partition_limit, self._settings.current.max_request_partition_size_limit)
        )
        view = View(
            self._broker_id, self._partitions, self._directories, self._metadata.image, request, self._access
        )
        response = DescribeTopicPartitionsResponse()
        for name in names:
            is_allowed = self._access.allows if asked else self._access.shows
            if not is_allowed(request, Operation.DESCRIBE, Resource.TOPIC, name):
                if asked:
                    response.topics.append(failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            topic = self._metadata.image.topics.get(name)
            if topic is None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION if name_fault(name) else None
                response.topics.append(failed(name, code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            if room == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            last = min(first + room, len(topic.partitions))
            response.topics.append(described(view, topic, first, last))
            room -= max(0, last - first)
            if last < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=last)
                break
        return self._metadata.when_durable(request, response)


def described(view: View, topic: TopicState, first: int, last: int) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in range(first, last):
        state = topic.partitions[index]
        told = view.partition(topic, index, state)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=told.error_code,
                partition_index=index,
                leader_id=told.leader_id,
                leader_epoch=told.leader_epoch,
                replica_nodes=told.replica_nodes,
                isr_nodes=told.isr_nodes,
                eligible_leader_replicas=list(state.eligible_leader_replicas),
                last_known_elr=list(state.last_known_elr),
                offline_replicas=told.offline_replicas,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=view.operations(topic.name),
    )


def failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
