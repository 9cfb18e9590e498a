"""SyncGroup, key 14, versions 0–5: the leader hands in who gets what, and every member waits for its part."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.coordinators.callers import caller
from headrace.node.coordinators.tickets import Ticket
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(node: Node, request: Request) -> Any:
    body: SyncGroupRequest = request.body
    shard = node.groups.asked(request, Operation.READ, body.group_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    sizes = [len(one.assignment) for one in body.assignments]
    refusal = node.groups.member_memory.refusal(request.now, shard, body.group_id, body.member_id, sizes)
    if refusal is not None:
        return refused(refusal)
    ticket = Ticket(node, request, refused)
    decision = shard.machine.sync(request.now, body, request.version, caller(request), ticket)
    return shard.answer(request, decision, refused, ticket)


def refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
