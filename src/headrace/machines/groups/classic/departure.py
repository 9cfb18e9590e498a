"""How members go: they say so, somebody else says so for them, or they are not heard of any more."""

from __future__ import annotations

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.shard import Shard
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


def leave(shard: Shard, now: Now, group: ClassicGroup, leaving: list[MemberIdentity]) -> Decision:
    """An admin names static members by their instance id alone."""
    decision = Decision()
    responses = []
    for identity in leaving:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            found = None if instance_id is None else group.static_members.get(instance_id)
            error = ErrorCode.NONE if found else ErrorCode.UNKNOWN_MEMBER_ID
        else:
            found = member_id
            is_pending = member_id in group.pending
            error = ErrorCode.NONE if is_pending else group.check_member(member_id, instance_id)
        if not error and found:
            _remove(shard, group, found, decision)
        responses.append(MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error))
    if any(not response.error_code for response in responses):
        rebalance_without(shard, now, group, decision)
    decision.reply = LeaveGroupResponse(members=responses)
    return decision


def refusal(leaving: list[MemberIdentity], error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
            for identity in leaving
        ]
    )


def session_over(shard: Shard, now: Now, group: ClassicGroup, member_id: str, decision: Decision) -> None:
    """The SESSION timer of a member, or of an id that was given out and never used, rang."""
    member = group.members.get(member_id)
    if member is None:
        if member_id in group.pending:
            group.pending.discard(member_id)
            rebalance.maybe_complete(shard, now, group, decision)
    elif member.is_new or not member.waits:
        _remove(shard, group, member_id, decision)
        rebalance_without(shard, now, group, decision)


def _remove(shard: Shard, group: ClassicGroup, member_id: str, decision: Decision) -> None:
    shard.timers.cancel((rebalance.SESSION, group.group_id, member_id))
    member = group.members.get(member_id)
    if member is not None:
        rebalance.dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID, decision)
    group.remove(member_id)


def rebalance_without(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    if group.status is not State.EMPTY:
        rebalance.prepare_or_complete(shard, now, group, decision)
