"""ConsumerGroupHeartbeat: a member joins, reports its partitions and subscription, and gets its
assignment.

A heartbeat without changes writes nothing; the first lines of `heartbeat` recognise it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.ids import new_id_text
from headrace.base.time import Now
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.departure import remove_members
from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
    MemberState,
    Partitions,
)
from headrace.machines.groups.consumer.membership import check_room, known_member, static_member_of, take_over
from headrace.machines.groups.consumer.migration import group_to_join, take_over_classic
from headrace.machines.groups.consumer.patterns import MaySee, is_refresh_due
from headrace.machines.groups.consumer.progress import Change, advance
from headrace.machines.groups.consumer.targets import offered_assignors
from headrace.machines.groups.consumer.timing import SESSION, await_revocation, await_session
from headrace.protocol.coordinator_records import Record
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


class Heartbeat(NamedTuple):
    """Of a member; None, and -1 for the timeout, mean "unchanged"."""

    group_id: str
    member_id: str
    member_epoch: int  # or one of JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None  # subscribed by name
    regex: str | None = None  # subscribed by pattern
    assignor: str | None = None
    owned: Mapping[bytes, Sequence[int]] | None = None  # partitions by topic id
    chooses_id: bool = True  # False: the coordinator may name a new member


class HeartbeatResult(NamedTuple):
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: list[tuple[bytes, list[int]]] | None = None  # by topic id; None: unchanged
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def heartbeat(
    machine: Groups,
    now: Now,
    request: Heartbeat,
    caller: Caller,
    may_see: MaySee,
) -> Decision:
    """`may_see` says which topics the member's patterns may find."""
    group = machine.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        member = group.members.get(request.member_id)
        if member is not None and _is_without_news(machine, now, group, member, request, caller):
            config = machine.settings.of_group(request.group_id)
            timer = (SESSION, request.group_id, request.member_id)
            machine.timers.set(timer, now.after_ms(config.session_timeout_ms))
            return Decision(HeartbeatResult(member.member_id, member.epoch, config.heartbeat_interval_ms))
    try:
        _validate(machine, request)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return _leave(machine, now, request)
        return _beat(machine, now, request, caller, may_see)
    except GroupError as refused:
        return Decision(HeartbeatResult(error=refused.code, message=refused.message))


def _is_without_news(
    machine: Groups,
    now: Now,
    group: ConsumerGroup,
    member: Member,
    request: Heartbeat,
    caller: Caller,
) -> bool:
    return (
        member.epoch == request.member_epoch == group.assignment_epoch == group.epoch
        and member.state is MemberState.STABLE
        and request.owned is None
        and request.topics is None
        and request.regex is None
        and request.rebalance_timeout_ms == -1
        and request.assignor is None
        and request.rack_id is None
        and request.instance_id == member.instance_id
        and group.topics_version == machine.topics.version
        and member.classic is None
        and caller == (member.client_id, member.client_host)
        and not (group.regexes and is_refresh_due(machine, now, group))
    )


def _validate(machine: Groups, request: Heartbeat) -> None:
    epoch = request.member_epoch
    problem = None
    if not request.member_id and (request.chooses_id or epoch != JOIN_EPOCH):
        problem = "a member id is needed"
    elif not request.group_id:
        problem = "a group id is needed"
    elif request.instance_id == "":
        problem = "the instance id is empty"
    elif request.rack_id == "":
        problem = "the rack id is empty"
    elif epoch == JOIN_EPOCH and request.rebalance_timeout_ms == -1:
        problem = "whoever joins says its rebalance timeout"
    elif epoch == JOIN_EPOCH and request.owned:
        problem = "whoever joins owns no partitions"
    elif epoch == JOIN_EPOCH and request.topics is None and request.regex is None:
        problem = "whoever joins says what it subscribes to"
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        problem = "only a static member can leave for a while"
    elif epoch < STATIC_LEAVE_EPOCH:
        problem = f"{epoch} is not a member epoch"
    if problem is not None:
        raise GroupError(ErrorCode.INVALID_REQUEST, problem)
    assignor = request.assignor
    if assignor is not None and assignor not in offered_assignors(machine):
        message = f"there is no assignor {assignor!r}, only {', '.join(offered_assignors(machine))}"
        raise GroupError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


# --- joining and going on -----------------------------------------------------------------------------------


def _beat(machine: Groups, now: Now, request: Heartbeat, caller: Caller, may_see: MaySee) -> Decision:
    decision = Decision()
    is_joining = request.member_epoch == JOIN_EPOCH
    group = (
        group_to_join(machine, request.group_id, decision.records)
        if is_joining
        else _existing(machine, request)
    )
    check_room(machine, group, request.member_id, request.instance_id)
    member_id = request.member_id or new_id_text(machine.rng)
    if request.instance_id is None:
        before = _dynamic_member(group, member_id, request, is_joining=is_joining)
    else:
        before = _static_member(group, member_id, request, decision.records, is_joining=is_joining)

    names = request.topics
    member = replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms
        ),
        assignor=before.assignor if request.assignor is None else request.assignor,
        topics=before.topics if names is None else tuple(sorted(set(names))),
        regex=before.regex if request.regex is None else request.regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
    member = advance(machine, now, group, Change(before, member, request.owned, may_see), decision.records)
    await_session(machine, now, group.group_id, member)
    take_over_classic(machine, now, group, decision)

    is_full = (
        request.rebalance_timeout_ms != -1
        and (names is not None or request.regex is not None)
        and request.owned is not None
    )
    decision.reply = HeartbeatResult(
        member.member_id,
        member.epoch,
        machine.settings.of_group(group.group_id).heartbeat_interval_ms,
        _told(member.assigned) if is_joining or is_full or member.assigned != before.assigned else None,
    )
    return decision


def _told(assigned: Partitions) -> list[tuple[bytes, list[int]]]:
    return [(topic, sorted(numbers)) for topic, numbers in sorted(assigned.items())]


def _existing(machine: Groups, request: Heartbeat) -> ConsumerGroup:
    group = machine.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id!r}")
    return group


def _dynamic_member(group: ConsumerGroup, member_id: str, request: Heartbeat, *, is_joining: bool) -> Member:
    if is_joining:
        return group.members.get(member_id) or Member(member_id)
    member = known_member(group, member_id)
    _check_epoch(member, request)
    return member


def _static_member(
    group: ConsumerGroup,
    member_id: str,
    request: Heartbeat,
    written: list[Record],
    *,
    is_joining: bool,
) -> Member:
    instance_id = request.instance_id
    assert instance_id is not None
    former = group.static_member(instance_id)
    if not is_joining:
        member = static_member_of(group, instance_id, member_id)
        _check_epoch(member, request)
        return member
    if former is None:
        return group.members.get(member_id) or Member(member_id)
    if former.classic is None and former.epoch != STATIC_LEAVE_EPOCH:
        message = f"member {former.member_id!r} holds the instance id {instance_id!r} and has not left"
        raise GroupError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    return take_over(group, former, member_id, written)


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """A member whose last answer was lost comes with its former epoch, and owns no more than it may."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    if epoch == member.previous_epoch and epoch < member.epoch and _owns_only_assigned(member, request):
        return
    raise GroupError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is at epoch {member.epoch}, not {epoch}: it must give up its partitions and join again",
    )


def _owns_only_assigned(member: Member, request: Heartbeat) -> bool:
    if request.owned is None:
        return False
    return all(
        number in member.assigned.get(topic, {})
        for topic, numbers in request.owned.items()
        for number in numbers
    )


# --- leaving ------------------------------------------------------------------------------------------------


def _leave(machine: Groups, now: Now, request: Heartbeat) -> Decision:
    group = _existing(machine, request)
    reply = HeartbeatResult(request.member_id, request.member_epoch)
    if request.instance_id is None:
        member = known_member(group, request.member_id)
    else:
        member = static_member_of(group, request.instance_id, request.member_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # What it had is kept for its return; its session timer runs on.
        assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
        absent = replace(
            member, epoch=STATIC_LEAVE_EPOCH, state=MemberState.STABLE, assigned=assigned, revoking={}
        )
        await_revocation(machine, now, group.group_id, absent)
        return Decision(reply, [records.current_assignment(group.group_id, absent)])
    decision = remove_members(machine, now, group, [member])
    decision.reply = reply
    return decision
