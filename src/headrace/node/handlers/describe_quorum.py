"""DescribeQuorum, key 55, versions 0–2: who votes on the metadata log, and how far each has come.

There is one question that can be asked, partition 0 of `__cluster_metadata`; any other, or that one beside
another, is answered as an unknown partition.
"""

from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings, Settings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_quorum as messages
from headrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionResult,
    ReplicaState,
    TopicResult,
)

TELLS_NODES_SINCE = 2
UNKNOWN = "This server does not host this topic-partition."


class DescribeQuorum:
    def __init__(
        self,
        broker_id: int,
        directories: LogDirectories,
        metadata: MetadataLog,
        settings: LiveSettings,
        access: Access,
    ) -> None:
        self._broker_id = broker_id
        self._directories = directories
        self._metadata = metadata
        self._settings = settings
        self._access = access

    def handle(self, request: Request) -> DescribeQuorumResponse:
        body: DescribeQuorumRequest = request.body
        if not self._access.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            return DescribeQuorumResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Authorization failed."
            )
        asked = [
            (topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in body.topics
        ]
        if asked != [(METADATA_TOPIC, [0])]:
            return DescribeQuorumResponse(topics=[unknown(name, indexes) for name, indexes in asked])
        response = DescribeQuorumResponse(
            topics=[TopicResult(topic_name=METADATA_TOPIC, partitions=[self._quorum(request)])]
        )
        if request.version >= TELLS_NODES_SINCE:
            response.nodes = [
                messages.Node(node_id=self._broker_id, listeners=listeners(self._settings.current))
            ]
        return response

    def _quorum(self, request: Request) -> PartitionResult:
        """The one voter is this node, which leads and is never behind itself."""
        metadata = self._metadata
        voter = ReplicaState(
            replica_id=self._broker_id,
            log_end_offset=metadata.end_offset,
            last_fetch_timestamp=request.now.wall_ms,
            last_caught_up_timestamp=request.now.wall_ms,
        )
        if request.version >= TELLS_NODES_SINCE:
            directory = self._directories[self._settings.current.metadata_log_dir]
            voter.replica_directory_id = directory.directory_id
        return PartitionResult(
            leader_id=self._broker_id,
            leader_epoch=metadata.epoch,
            high_watermark=metadata.committed_offset,
            current_voters=[voter],
        )


def unknown(topic: str, indexes: list[int]) -> TopicResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicResult(
        topic_name=topic,
        partitions=[
            PartitionResult(partition_index=index, error_code=code, error_message=UNKNOWN)
            for index in indexes
        ],
    )


def listeners(settings: Settings) -> list[messages.Listener]:
    """Where the voter is reached: its controller listeners, or the clients' when it has none of its own."""
    return [
        messages.Listener(name=one.name, host=one.host, port=one.port)
        for one in settings.advertised_controllers or settings.advertised_listeners
    ]
