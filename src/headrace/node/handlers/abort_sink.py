"""AbortSink, key 30012: what a run of a sink wrote and did not commit never counts."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.abort_sink import AbortSinkRequest, AbortSinkResponse


class AbortSink:
    def __init__(
        self,
        sinks: SinkCoordinator,
        access: Access,
    ) -> None:
        self._sinks = sinks
        self._access = access

    def handle(self, request: Request) -> Any:
        body: AbortSinkRequest = request.body
        if not self._access.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.app_id):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._sinks.shard_of(request.now, body.app_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        return shard.answer(request, shard.machine.abort(request.now, body), refused)


def refused(code: ErrorCode) -> AbortSinkResponse:
    return AbortSinkResponse(error_code=code, error_message=None)
