"""Vote, key 52, versions 0–2: a candidate, or a voter that may become one, asks this node for its vote."""

from typing import Any

from headrace.machines.raft import messages as raft
from headrace.node.handlers.quorum_request import QuorumRequests
from headrace.node.metadata_files import METADATA_TOPIC
from headrace.node.quorum_messages import Malformed, vote_of
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.vote import PartitionResult, TopicResult, VoteRequest, VoteResponse


class Vote:
    def __init__(self, requests: QuorumRequests) -> None:
        self._requests = requests

    def handle(self, request: Request) -> Any:
        body: VoteRequest = request.body
        error = self._requests.error(request, body.cluster_id)
        if error is not ErrorCode.NONE:
            return VoteResponse(error_code=error)
        try:
            message = vote_of(body, self._requests.node_id)
        except Malformed:
            return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        return self._requests.ask(request, message, self._response)

    @staticmethod
    def _response(answer: raft.Answer) -> VoteResponse:
        assert isinstance(answer, raft.VoteAnswer)
        result = PartitionResult(
            error_code=answer.error,
            leader_id=answer.leader_id,
            leader_epoch=answer.epoch,
            vote_granted=answer.is_granted,
        )
        return VoteResponse(topics=[TopicResult(topic_name=METADATA_TOPIC, partitions=[result])])
