"""JoinGroup, key 11, versions 0–9: become a member of a classic group; answered after the rebalance."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Ticket, caller
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


class JoinGroup:
    def __init__(
        self,
        groups: GroupCoordinator,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: JoinGroupRequest = request.body

        def refused(code: ErrorCode) -> JoinGroupResponse:
            # versions below 7 cannot say null, and nobody reads the name beside an error
            return JoinGroupResponse(error_code=code, member_id=body.member_id, protocol_name="")

        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        size = sum(len(protocol.name) + len(protocol.metadata) for protocol in body.protocols)
        refusal = self._groups.member_refusal(request.now, shard, body.group_id, body.member_id, [size])
        if refusal is not None:
            return refused(refusal)
        ticket = Ticket(self._waiting, request, refused)
        decision = shard.machine.join(request.now, body, request.version, caller(request), ticket)
        return shard.answer(request, decision, refused, ticket)
