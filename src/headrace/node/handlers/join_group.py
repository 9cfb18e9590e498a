"""JoinGroup, key 11, versions 0–9: become a member of a classic group; answered after the rebalance.

From version 4 on a dynamic member gets its id first and joins with it, from 5 on a member may have an
instance id (KIP-345), from 9 on a static leader that came back is told that nothing has to be assigned.
Version 0 has no rebalance timeout.
"""

from typing import Any

from headrace.base.limits import COORDINATOR_NAME_CHARACTERS_MAX
from headrace.machines.groups.classic.requests import Join, Joined
from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Ticket, caller
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

REBALANCE_TIMEOUT_SINCE = 1
JOINS_TWICE_SINCE = 4
SKIPS_ASSIGNMENT_SINCE = 9


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
        member_id = body.member_id

        def refused(code: ErrorCode) -> JoinGroupResponse:
            return respond(Joined(member_id, code))

        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        names = (request.client_id or "", body.group_instance_id or "", body.member_id, body.protocol_type)
        if max(map(len, (*names, *(one.name for one in body.protocols)))) > COORDINATOR_NAME_CHARACTERS_MAX:
            return refused(ErrorCode.INVALID_REQUEST)
        ticket = Ticket(self._waiting, request, respond, refused)
        decision = shard.decide(
            request.now,
            body.group_id,
            shard.machine.join,
            asked(body, request.version),
            caller(request),
            ticket,
        )
        return shard.answer(request, decision, respond, refused, ticket)


def asked(body: JoinGroupRequest, version: int) -> Join:
    has_timeout = version >= REBALANCE_TIMEOUT_SINCE
    return Join(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.protocol_type,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms if has_timeout else body.session_timeout_ms,
        joins_twice=version >= JOINS_TWICE_SINCE,
        can_skip_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
    )


def respond(joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        # versions below 7 cannot say null, and nobody reads the name beside an error
        protocol_name="" if joined.error else joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ],
    )
