"""EndQuorumEpoch, key 54, versions 0–1: the leader of the quorum resigns, and names the voters that
should succeed it."""

from typing import Any

from headrace.machines.raft import messages as raft
from headrace.node.handlers.quorum_request import QuorumRequests
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.quorum_messages import Malformed, end_of
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    PartitionResult,
    TopicResult,
)


class EndQuorumEpoch:
    def __init__(self, requests: QuorumRequests) -> None:
        self._requests = requests

    def handle(self, request: Request) -> Any:
        body: EndQuorumEpochRequest = request.body
        error = self._requests.error(request, body.cluster_id)
        if error is not ErrorCode.NONE:
            return EndQuorumEpochResponse(error_code=error)
        try:
            message = end_of(body)
        except Malformed:
            return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        return self._requests.ask(request, message, self._response)

    @staticmethod
    def _response(answer: raft.Answer) -> EndQuorumEpochResponse:
        assert isinstance(answer, raft.EpochAnswer)
        result = PartitionResult(
            error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        return EndQuorumEpochResponse(topics=[TopicResult(topic_name=METADATA_TOPIC, partitions=[result])])
