"""LeaveGroup, key 13, versions 0–5: one member, or from version 3 many, leave at once."""

from typing import Any

from headrace.machines.groups.classic.requests import Leaving, Left
from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

MANY_SINCE = 3


class LeaveGroup:
    def __init__(
        self,
        groups: GroupCoordinator,
    ) -> None:
        self._groups = groups

    def handle(self, request: Request) -> Any:
        body: LeaveGroupRequest = request.body
        version = request.version
        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        decision = shard.decide(
            request.now, body.group_id, shard.machine.leave, body.group_id, asked(body, version)
        )
        return shard.answer(request, decision, lambda left: respond(left, body, version), refused)


def asked(body: LeaveGroupRequest, version: int) -> list[Leaving]:
    if version < MANY_SINCE:
        return [Leaving(body.member_id)]
    return [Leaving(member.member_id, member.group_instance_id) for member in body.members]


def respond(left: Left, body: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    if version < MANY_SINCE:
        return refused(left.error or left.members[0])
    return LeaveGroupResponse(
        error_code=left.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
            )
            for member, error in zip(body.members, left.members, strict=False)  # none, if all are refused
        ],
    )


def refused(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
