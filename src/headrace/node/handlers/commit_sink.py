"""CommitSink, key 30011: commits a batch of a sink, with the attempts that succeeded."""

from typing import Any

from headrace.machines.sinks.sinks import SinkResult
from headrace.node.authorization import Operation
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommitSinkResponse


class CommitSink:
    def __init__(self, sinks: SinkCoordinator) -> None:
        self._sinks = sinks

    def handle(self, request: Request) -> Any:
        body: CommitSinkRequest = request.body
        shard = self._sinks.asked(request, Operation.WRITE, body.app_id, (body.query_id, body.run_id))
        if isinstance(shard, ErrorCode):
            return refused(shard)
        attempts = [(each.producer_id, each.producer_epoch) for each in body.attempts]
        decision = shard.decide(
            request.now,
            body.app_id,
            shard.machine.commit,
            body.app_id,
            body.query_id,
            body.run_id,
            body.batch_id,
            attempts,
        )
        return shard.answer(request, decision, respond, refused)


def respond(result: SinkResult) -> CommitSinkResponse:
    return CommitSinkResponse(error_code=result.error, error_message=result.message)


def refused(code: ErrorCode) -> CommitSinkResponse:
    return CommitSinkResponse(error_code=code, error_message=None)
