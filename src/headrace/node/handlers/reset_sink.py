"""ResetSink, key 30014: deletes the number of a sink's last committed batch, and aborts open attempts."""

from typing import Any

from headrace.machines.sinks.sinks import SinkResult
from headrace.node.authorization import Operation
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.reset_sink import ResetSinkRequest, ResetSinkResponse


class ResetSink:
    def __init__(self, sinks: SinkCoordinator) -> None:
        self._sinks = sinks

    def handle(self, request: Request) -> Any:
        body: ResetSinkRequest = request.body
        shard = self._sinks.asked(request, Operation.WRITE, body.app_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        decision = shard.decide(request.now, body.app_id, shard.machine.reset, body.app_id)
        return shard.answer(request, decision, respond, refused)


def respond(result: SinkResult) -> ResetSinkResponse:
    return ResetSinkResponse(error_code=result.error, error_message=result.message)


def refused(code: ErrorCode) -> ResetSinkResponse:
    return ResetSinkResponse(error_code=code, error_message=None)
