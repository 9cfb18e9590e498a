"""SyncGroup, key 14, versions 0–5: the leader hands in who gets what, and every member waits for its part."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Ticket, caller
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class SyncGroup:
    def __init__(
        self,
        groups: GroupCoordinator,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: SyncGroupRequest = request.body
        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        sizes = [len(one.assignment) for one in body.assignments]
        refusal = self._groups.member_refusal(request.now, shard, body.group_id, body.member_id, sizes)
        if refusal is not None:
            return refused(refusal)
        ticket = Ticket(self._waiting, request, refused)
        decision = shard.machine.sync(request.now, body, request.version, caller(request), ticket)
        return shard.answer(request, decision, refused, ticket)


def refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
