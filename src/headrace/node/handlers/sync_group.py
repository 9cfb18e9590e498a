"""SyncGroup, key 14, versions 0–5: the leader sends the assignment, and every member waits for its part.

From version 5 on a member must name the protocol that it believes was chosen.
"""

from typing import Any

from headrace.machines.groups.classic.requests import Sync, Synced
from headrace.node.authorization import Operation
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Ticket
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NAMES_PROTOCOL_SINCE = 5


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
        if body.group_id and not names_what_it_must(body, request.version):
            return refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        ticket = Ticket(self._waiting, request, respond, refused)
        decision = shard.decide(request.now, body.group_id, shard.machine.sync, asked(body), ticket)
        return shard.answer(request, decision, respond, refused, ticket)


def names_what_it_must(body: SyncGroupRequest, version: int) -> bool:
    names_protocol = body.protocol_type is not None and body.protocol_name is not None
    return version < NAMES_PROTOCOL_SINCE or names_protocol


def asked(body: SyncGroupRequest) -> Sync:
    return Sync(
        body.group_id,
        body.generation_id,
        body.member_id,
        body.group_instance_id,
        body.protocol_type,
        body.protocol_name,
        {share.member_id: bytes(share.assignment) for share in body.assignments},
    )


def respond(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
