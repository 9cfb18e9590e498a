"""Fetch, key 1, on controller listeners: voters and brokers read the metadata log.

The quorum answers when there is something new, or when the fetch has waited long enough. Brokers' listeners
have another handler (`fetch.py`).
"""

from typing import Any

from headrace.base.ids import METADATA_TOPIC_ID
from headrace.machines.raft import messages as raft
from headrace.node.handlers.quorum_request import QuorumRequests
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.metadata_log import MetadataLog
from headrace.node.quorum_messages import Malformed, fetch_of
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from headrace.storage.errors import StorageError

LEADERS_SINCE = 12  # the version that tells the leader, divergence and snapshots


class FetchMetadata:
    def __init__(self, requests: QuorumRequests, metadata: MetadataLog, *, bytes_max: int) -> None:
        self._requests = requests
        self._metadata = metadata
        self._bytes_max = bytes_max

    def handle(self, request: Request) -> Any:
        body: FetchRequest = request.body
        error = self._requests.error(request, body.cluster_id)
        if error is ErrorCode.NONE and request.version < LEADERS_SINCE:
            error = ErrorCode.UNSUPPORTED_VERSION
        if error is not ErrorCode.NONE:
            return FetchResponse(error_code=error)
        try:
            message = fetch_of(body)
        except Malformed:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        if message.replica.id >= 0:
            request.connection.peer = message.replica.id  # the controller watches brokers' connections
        bytes_max = min(self._bytes_max, max(body.max_bytes, 1))
        return self._requests.ask(
            request, message, lambda answer: self._response(answer, message.end.end_offset, bytes_max)
        )

    def _response(self, answer: raft.Answer, offset: int, bytes_max: int) -> FetchResponse:
        assert isinstance(answer, raft.FetchAnswer)
        data = PartitionData(
            error_code=answer.error,
            high_watermark=answer.high_watermark,
            current_leader=LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
            aborted_transactions=None,
        )
        divergence, snapshot = answer.divergence, answer.snapshot
        if divergence is not None:
            data.diverging_epoch = EpochEndOffset(epoch=divergence.epoch, end_offset=divergence.end_offset)
        elif snapshot is not None:
            data.snapshot_id = SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        elif answer.error is ErrorCode.NONE:
            try:
                data.records = self._metadata.read(offset, bytes_max)
            except StorageError:
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        if data.records is None:
            data.records = b""
        topic = FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data])
        return FetchResponse(responses=[topic])
