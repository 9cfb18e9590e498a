"""BeginQuorumEpoch, key 53, versions 0–1: a new leader of the quorum tells this voter about its epoch."""

from typing import Any

from headrace.machines.raft import messages as raft
from headrace.node.handlers.quorum_request import QuorumRequests
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.quorum_messages import Malformed, begin_of
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    PartitionResult,
    TopicResult,
)


class BeginQuorumEpoch:
    def __init__(self, requests: QuorumRequests) -> None:
        self._requests = requests

    def handle(self, request: Request) -> Any:
        body: BeginQuorumEpochRequest = request.body
        error = self._requests.error(request, body.cluster_id)
        if error is not ErrorCode.NONE:
            return BeginQuorumEpochResponse(error_code=error)
        try:
            message = begin_of(body, self._requests.node_id)
        except Malformed:
            return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        return self._requests.ask(request, message, self._response)

    @staticmethod
    def _response(answer: raft.Answer) -> BeginQuorumEpochResponse:
        assert isinstance(answer, raft.EpochAnswer)
        result = PartitionResult(
            error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        return BeginQuorumEpochResponse(topics=[TopicResult(topic_name=METADATA_TOPIC, partitions=[result])])
