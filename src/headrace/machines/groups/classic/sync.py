"""SyncGroup and Heartbeat: the leader hands in the assignment, everybody fetches its share."""

from __future__ import annotations

from headrace.base.time import Now
from headrace.machines.coordination import Decision, Ticket
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.shard import Shard
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(shard: Shard, now: Now, group: ClassicGroup, request: SyncGroupRequest, ticket: Ticket) -> Decision:
    decision = Decision()
    error = _check(group, request)
    if error:
        decision.reply = SyncGroupResponse(error_code=error)
        return decision
    member = group.members[request.member_id]
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        shard.timers.cancel((rebalance.SYNC, group.group_id, ""))
    if group.status is State.STABLE:
        decision.reply = rebalance.share_of(group, member)
        return decision
    displaced, member.sync_ticket = member.sync_ticket, ticket
    if displaced is not None:
        answer = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        decision.answers.append((displaced, answer))
    if member.member_id == group.leader:
        shares = {share.member_id: bytes(share.assignment) for share in request.assignments}
        rebalance.spread_assignments(shard, now, group, shares, ErrorCode.NONE, decision)
        decision.records.append(group.record())
        group.enter(State.STABLE, now.wall_ms)
    return decision


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.status is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(told: str | None, ours: str | None) -> bool:
    return told is not None and ours is not None and told != ours


def heartbeat(shard: Shard, now: Now, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    rebalance.restart_session(shard, now, group, group.members[request.member_id])
    if group.status is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
