"""SyncGroup and Heartbeat: the leader sends the assignment, and every member gets its part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.coordination import Decision, Ticket
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.classic.requests import Sync, Synced
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


def sync(machine: Groups, now: Now, group: ClassicGroup, request: Sync, ticket: Ticket) -> Decision:
    decision = Decision()
    error = _check(group, request)
    if not error and machine.timers.get((rebalance.ADOPT, group.group_id, "")) is not None:
        # of a downgraded group: its record has what everybody was to have, and others may have it still
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error:
        decision.reply = Synced(error)
        return decision
    member = group.members[request.member_id]
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        machine.timers.cancel((rebalance.SYNC, group.group_id, ""))
    if group.status is State.STABLE:
        decision.reply = rebalance.share_of(group, member)
        return decision
    displaced, member.sync_ticket = member.sync_ticket, ticket
    if displaced is not None:
        answer = Synced(ErrorCode.REBALANCE_IN_PROGRESS)
        decision.answers.append((displaced, answer))
    if member.member_id == group.leader:
        rebalance.spread_assignments(machine, now, group, request.assignments, ErrorCode.NONE, decision)
        decision.records.append(group.record())
        group.enter(State.STABLE, now.wall_ms)
    return decision


def _check(group: ClassicGroup, request: Sync) -> ErrorCode:
    error = group.check_member(request.member_id, request.instance_id)
    if error:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.status is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(told: str | None, ours: str | None) -> bool:
    return told is not None and ours is not None and told != ours


def heartbeat(
    machine: Groups, now: Now, group: ClassicGroup, generation: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    error = group.check_member(member_id, instance_id)
    if error:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    rebalance.restart_session(machine, now, group, group.members[member_id])
    if group.status is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
