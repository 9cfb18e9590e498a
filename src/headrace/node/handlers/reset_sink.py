"""ResetSink, key 30014: a sink forgets which batches it has."""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.reset_sink import ResetSinkRequest, ResetSinkResponse


def handle(node: Node, request: Request) -> Any:
    body: ResetSinkRequest = request.body
    if not node.allows(request, Operation.ALTER, Resource.TRANSACTIONAL_ID, body.app_id):
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    shard = node.sinks.shard_of(request.now, body.app_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    return shard.answer(request, shard.machine.reset(request.now, body), refused)


def refused(code: ErrorCode) -> ResetSinkResponse:
    return ResetSinkResponse(error_code=code, error_message=None)
