"""Heartbeat, key 12, versions 0–4: a member of a classic group is alive."""

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
            return refused(ErrorCode.NONE if is_loading else shard)
        return shard.answer(request, shard.machine.heartbeat(request.now, body), refused)


def refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
