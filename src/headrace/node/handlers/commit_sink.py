"""CommitSink, key 30011: a batch of a sink counts, exactly as these attempts wrote it."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommitSinkResponse


class CommitSink:
    def __init__(
        self,
        sinks: SinkCoordinator,
        access: Access,
    ) -> None:
        self._sinks = sinks
        self._access = access

    def handle(self, request: Request) -> Any:
        body: CommitSinkRequest = request.body
        if not self._access.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.app_id):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._sinks.shard_of(request.now, body.app_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        return shard.answer(request, shard.machine.commit(request.now, body), refused)


def refused(code: ErrorCode) -> CommitSinkResponse:
    return CommitSinkResponse(error_code=code, error_message=None)
