"""JoinSink, key 30010: an attempt to write a part of a sink's batch begins."""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.faults import FAULTS
from headrace.node.node import Node
from headrace.node.producer_ids import NotGrantedYet
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_sink import JoinSinkRequest, JoinSinkResponse


def handle(node: Node, request: Request) -> Any:
    body: JoinSinkRequest = request.body
    if not node.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.app_id):
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    shard = node.sinks.shard_of(request.now, body.app_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    fresh_id = node.producer_ids.source(request.now)
    try:
        decision = shard.machine.join(request.now, body, fresh_id)
    except (NotGrantedYet, *FAULTS):
        return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> JoinSinkResponse:
    return JoinSinkResponse(error_code=code, error_message=None)
