"""LeaveGroup, key 13, versions 0–5: one member, or from version 3 many, leave at once."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(node: Node, request: Request) -> Any:
    body: LeaveGroupRequest = request.body
    shard = node.groups.asked(request, Operation.READ, body.group_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    return shard.answer(request, shard.machine.leave(request.now, body, request.version), refused)


def refused(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
