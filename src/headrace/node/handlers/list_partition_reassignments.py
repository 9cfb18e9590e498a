"""ListPartitionReassignments, key 46, version 0: partitions whose replicas are being moved.

Null topics are all. What is not there is left out, as in Kafka.
"""

from headrace.machines.metadata.image import ClusterImage, PartitionState
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import CommittedReply
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class ListPartitionReassignments:
    def __init__(
        self,
        metadata: MetadataLog,
        access: Access,
    ) -> None:
        self._metadata = metadata
        self._access = access

    def handle(self, request: Request) -> ListPartitionReassignmentsResponse | CommittedReply:
        body: ListPartitionReassignmentsRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            return ListPartitionReassignmentsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Authorization failed."
            )
        response = ListPartitionReassignmentsResponse(
            error_message=None, topics=under_way(self._metadata.image, body)
        )
        return self._metadata.when_durable(request, response)


def under_way(image: ClusterImage, body: ListPartitionReassignmentsRequest) -> list[OngoingTopicReassignment]:
    asked: dict[str, set[int] | None] = (
        dict.fromkeys(image.topics)
        if body.topics is None
        else {topic.name: set(topic.partition_indexes) for topic in body.topics}
    )
    found = []
    for name, indexes in asked.items():
        topic = image.topics.get(name)
        moving = [
            told(index, partition)
            for index, partition in (topic.partitions.items() if topic else ())
            if (indexes is None or index in indexes)
            and (partition.adding_replicas or partition.removing_replicas)
        ]
        if moving:
            found.append(OngoingTopicReassignment(name=name, partitions=moving))
    return found


def told(index: int, partition: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
