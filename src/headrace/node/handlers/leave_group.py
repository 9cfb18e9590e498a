"""LeaveGroup, key 13, versions 0–5: one member, or from version 3 many, leave at once."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


class LeaveGroup:
    def __init__(
        self,
        groups: GroupCoordinator,
    ) -> None:
        self._groups = groups

    def handle(self, request: Request) -> Any:
        body: LeaveGroupRequest = request.body
        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        return shard.answer(request, shard.machine.leave(request.now, body, request.version), refused)


def refused(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
