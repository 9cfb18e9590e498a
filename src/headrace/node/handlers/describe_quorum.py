"""DescribeQuorum, key 55, versions 0–2: the voters and observers of the metadata log, with their end offsets.

The request must name partition 0 of `__cluster_metadata` and nothing else; otherwise the answer is the error
of an unknown partition.
"""

from headrace.base.time import Instant
from headrace.machines.raft.leader import Leader, Progress
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
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
    def __init__(self, metadata: MetadataLog, access: Access) -> None:
        self._metadata = metadata
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
                messages.Node(node_id=id, listeners=self._listeners(id))
                for id in self._metadata.quorum.voters.ids
            ]
        return response

    def _listeners(self, voter_id: int) -> list[messages.Listener]:
        return [
            messages.Listener(name=one.name, host=one.host, port=one.port)
            for one in self._metadata.endpoints(voter_id)
        ]

    def _quorum(self, request: Request) -> PartitionResult:
        """Only the leader knows how far the others are."""
        metadata = self._metadata
        quorum = metadata.quorum
        result = PartitionResult(
            leader_id=quorum.leader_id, leader_epoch=quorum.epoch, high_watermark=quorum.high_watermark
        )
        role = quorum.role
        if not isinstance(role, Leader):
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return result
        now = request.now
        local = Progress(quorum.local.directory_id, now.mono, metadata.end_offset, caught_up_at=now.mono)
        voters = {quorum.local.id: local} | role.followers
        result.current_voters = [
            self._replica(request, id, progress) for id, progress in sorted(voters.items())
        ]
        result.observers = [
            self._replica(request, key.id, progress) for key, progress in sorted(role.observers.items())
        ]
        return result

    @staticmethod
    def _replica(request: Request, id: int, progress: Progress) -> ReplicaState:
        now = request.now

        def wall_ms(at: Instant | None) -> int:
            return -1 if at is None else now.wall_ms - round((now.mono - at) * 1000)

        is_heard = progress.has_fetched or progress.caught_up_at is not None
        state = ReplicaState(
            replica_id=id,
            log_end_offset=progress.end_offset if is_heard else -1,
            last_fetch_timestamp=wall_ms(progress.fetched_at if is_heard else None),
            last_caught_up_timestamp=wall_ms(progress.caught_up_at),
        )
        if request.version >= TELLS_NODES_SINCE:
            state.replica_directory_id = progress.directory_id
        return state


def unknown(topic: str, indexes: list[int]) -> TopicResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicResult(
        topic_name=topic,
        partitions=[
            PartitionResult(partition_index=index, error_code=code, error_message=UNKNOWN)
            for index in indexes
        ],
    )
