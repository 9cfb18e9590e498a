"""AbortSink, key 30012: aborts the attempts of a run that are not committed."""

from typing import Any

from headrace.machines.sinks.sinks import SinkResult
from headrace.node.authorization import Operation
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.abort_sink import AbortSinkRequest, AbortSinkResponse


class AbortSink:
    def __init__(self, sinks: SinkCoordinator) -> None:
        self._sinks = sinks

    def handle(self, request: Request) -> Any:
        body: AbortSinkRequest = request.body
        shard = self._sinks.asked(request, Operation.WRITE, body.app_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        decision = shard.decide(
            request.now, body.app_id, shard.machine.abort, body.app_id, body.query_id, body.run_id
        )
        return shard.answer(request, decision, respond, refused)


def respond(result: SinkResult) -> AbortSinkResponse:
    return AbortSinkResponse(error_code=result.error, error_message=result.message)


def refused(code: ErrorCode) -> AbortSinkResponse:
    return AbortSinkResponse(error_code=code, error_message=None)
