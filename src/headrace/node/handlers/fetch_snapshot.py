"""FetchSnapshot, key 59, versions 0–1: a replica that is behind the start of the metadata log reads a
snapshot, piece by piece.
"""

from typing import Any

from headrace.machines.raft import messages as raft
from headrace.node.handlers.quorum_request import QuorumRequests
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.metadata_log import MetadataLog
from headrace.node.quorum_messages import Malformed, fetch_snapshot_of
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshotResult,
    SnapshotId,
    TopicSnapshotResult,
)


class FetchSnapshot:
    def __init__(self, requests: QuorumRequests, metadata: MetadataLog, *, bytes_max: int) -> None:
        self._requests = requests
        self._metadata = metadata
        self._bytes_max = bytes_max

    def handle(self, request: Request) -> Any:
        body: FetchSnapshotRequest = request.body
        error = self._requests.error(request, body.cluster_id)
        if error is not ErrorCode.NONE:
            return FetchSnapshotResponse(error_code=error)
        try:
            message = fetch_snapshot_of(body)
        except Malformed:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        bytes_max = min(self._bytes_max, max(body.max_bytes, 1))
        return self._requests.ask(request, message, lambda answer: self._response(answer, message, bytes_max))

    def _response(
        self, answer: raft.Answer, asked: raft.FetchSnapshot, bytes_max: int
    ) -> FetchSnapshotResponse:
        assert isinstance(answer, raft.SnapshotAnswer)
        piece = PartitionSnapshotResult(
            error_code=answer.error,
            snapshot_id=SnapshotId(end_offset=asked.snapshot.end_offset, epoch=asked.snapshot.epoch),
            current_leader=LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
            position=asked.position,
            unaligned_records=b"",
        )
        if answer.error is ErrorCode.NONE:
            self._read(piece, asked, bytes_max)
        return FetchSnapshotResponse(topics=[TopicSnapshotResult(name=METADATA_TOPIC, partitions=[piece])])

    def _read(self, piece: PartitionSnapshotResult, asked: raft.FetchSnapshot, bytes_max: int) -> None:
        try:
            data, size = self._metadata.read_snapshot(asked.snapshot, asked.position, bytes_max)
        except OSError:  # a newer one has taken its place
            piece.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
            return
        if not 0 <= asked.position < size:
            piece.error_code = ErrorCode.POSITION_OUT_OF_RANGE
            return
        piece.unaligned_records, piece.size = data, size
