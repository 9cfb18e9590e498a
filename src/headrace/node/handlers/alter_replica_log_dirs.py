"""AlterReplicaLogDirs, key 34, versions 1–2: moves partitions between this broker's log directories.

The answer says that the move is ordered; DescribeLogDirs shows its progress. If a partition is already in the
directory, it stays there, and a move that was ordered before is cancelled.
"""

from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.log_directories import LogDirectories
from headrace.node.partitions import Partitions
from headrace.node.replica_moves import ReplicaMoves
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


class AlterReplicaLogDirs:
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        moves: ReplicaMoves,
        settings: LiveSettings,
        access: Access,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._moves = moves
        self._settings = settings
        self._access = access

    def handle(self, request: Request) -> AlterReplicaLogDirsResponse:
        body: AlterReplicaLogDirsRequest = request.body
        # the last directory named for a partition counts
        wanted: dict[str, dict[int, str]] = {}
        for directory in body.dirs:
            for topic in directory.topics:
                wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
        is_allowed = self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=topic,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(
                            partition_index=index,
                            error_code=self._order(request, topic, index, path)
                            if is_allowed
                            else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                        )
                        for index, path in partitions.items()
                    ],
                )
                for topic, partitions in wanted.items()
            ]
        )

    def _order(self, request: Request, topic: str, index: int, path: str) -> ErrorCode:
        if path not in self._settings.current.log_dirs:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if self._directories[path].is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._partitions.at(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._moves.order(request.now, partition, path)
        return ErrorCode.NONE
