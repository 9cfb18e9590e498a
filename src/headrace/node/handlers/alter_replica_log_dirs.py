"""AlterReplicaLogDirs, key 34, versions 1–2: in which of this broker's log directories a partition lies.

The answer says that a move is ordered; DescribeLogDirs tells how far it is. A partition that is wanted where
it lies stays there, and a move that was ordered before is called off.
"""

from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(node: Node, request: Request) -> AlterReplicaLogDirsResponse:
    body: AlterReplicaLogDirsRequest = request.body
    # the last directory named for a partition counts
    wanted: dict[str, dict[int, str]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    is_allowed = node.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=order(node, request, topic, index, path)
                        if is_allowed
                        else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    )
                    for index, path in partitions.items()
                ],
            )
            for topic, partitions in wanted.items()
        ]
    )


def order(node: Node, request: Request, topic: str, index: int, path: str) -> ErrorCode:
    if path not in node.settings.log_dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if node.partitions.directories[path].is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partitions = node.partitions.of_name(topic) or []
    if not 0 <= index < len(partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = partitions[index]
    if partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    node.partitions.moves.order(request.now, partition, path)
    return ErrorCode.NONE
