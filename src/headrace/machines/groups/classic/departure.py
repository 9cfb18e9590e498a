"""Removal of members from a classic group: LeaveGroup, by the member or an admin, and session timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.classic.requests import Leaving, Left
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


def leave(machine: Groups, now: Now, group: ClassicGroup, leaving: Sequence[Leaving]) -> Decision:
    decision = Decision()
    errors = []
    for identity in leaving:
        member_id, instance_id = identity.member_id, identity.instance_id
        if not member_id:
            found = None if instance_id is None else group.static_members.get(instance_id)
            error = ErrorCode.NONE if found else ErrorCode.UNKNOWN_MEMBER_ID
        else:
            found = member_id
            is_pending = member_id in group.pending
            error = ErrorCode.NONE if is_pending else group.check_member(member_id, instance_id)
        if not error and found:
            _remove(machine, group, found, decision)
        errors.append(error)
    if ErrorCode.NONE in errors:
        rebalance_without(machine, now, group, decision)
    decision.reply = Left(members=tuple(errors))
    return decision


def session_over(machine: Groups, now: Now, group: ClassicGroup, member_id: str, decision: Decision) -> None:
    """The SESSION timer of a member, or of an id that was given out and never used, rang."""
    member = group.members.get(member_id)
    if member is None:
        if member_id in group.pending:
            group.pending.discard(member_id)
            rebalance.maybe_complete(machine, now, group, decision)
    elif member.is_new or not member.waits:
        _remove(machine, group, member_id, decision)
        rebalance_without(machine, now, group, decision)


def _remove(machine: Groups, group: ClassicGroup, member_id: str, decision: Decision) -> None:
    machine.timers.cancel((rebalance.SESSION, group.group_id, member_id))
    member = group.members.get(member_id)
    if member is not None:
        rebalance.dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID, decision)
    group.remove(member_id)


def rebalance_without(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    if group.status is not State.EMPTY:
        rebalance.prepare_or_complete(machine, now, group, decision)
