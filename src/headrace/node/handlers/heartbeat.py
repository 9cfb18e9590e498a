"""Heartbeat, key 12, versions 0–4: the heartbeat of a member of a classic group."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class Heartbeat:
    def __init__(
        self,
        groups: GroupCoordinator,
    ) -> None:
        self._groups = groups

    def handle(self, request: Request) -> Any:
        body: HeartbeatRequest = request.body
        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            # a member whose group is being loaded has done nothing wrong: it is not sent to join again
            is_loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return respond(ErrorCode.NONE if is_loading else shard)
        # it never has records, and so nothing to undo
        decision = shard.machine.heartbeat(
            request.now, body.group_id, body.generation_id, body.member_id, body.group_instance_id
        )
        return shard.answer(request, decision, respond, respond)


def respond(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
