"""Members of the classic protocol inside a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A generation is the member's epoch. The coordinator assigns partitions, not a leader. A join is answered at
once, with the member's next step; a heartbeat tells the member to join again whenever there is another step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.base.ids import new_id_text
from headrace.base.time import Now
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.classic.requests import Join, Joined, Leaving, Left, Sync, Synced
from headrace.machines.groups.consumer import embedded
from headrace.machines.groups.consumer.departure import remove_members
from headrace.machines.groups.consumer.errors import GroupError
from headrace.machines.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from headrace.machines.groups.consumer.member import Member, MemberState
from headrace.machines.groups.consumer.membership import check_room, known_member, static_member_of, take_over
from headrace.machines.groups.consumer.migration import downgrade, may_replace_and_downgrade
from headrace.machines.groups.consumer.progress import Change, advance
from headrace.machines.groups.consumer.timing import (
    CLASSIC_SYNC,
    await_classic_join,
    await_classic_sync,
    await_session,
)
from headrace.protocol.coordinator_records.groups import ClassicMemberMetadata, ClassicProtocol
from headrace.protocol.errors import ErrorCode, MalformedMessage
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

# --- JoinGroup ----------------------------------------------------------------------------------------------


def join(machine: Groups, now: Now, group: ConsumerGroup, request: Join, caller: Caller) -> Decision:
    try:
        return _join(machine, now, group, request, caller)
    except GroupError as refused:
        return Decision(Joined(request.member_id, refused.code))


def _join(machine: Groups, now: Now, group: ConsumerGroup, request: Join, caller: Caller) -> Decision:
    if machine.settings.group_consumer_migration_policy.lower() == "disabled":
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group has another protocol type")
    member_id = request.member_id or new_id_text(machine.rng)
    check_room(machine, group, member_id, request.instance_id)
    subscription = _subscription(group, request)
    if not request.member_id and request.instance_id is None and request.joins_twice:
        return Decision(Joined(member_id, ErrorCode.MEMBER_ID_REQUIRED))

    decision = Decision()
    former = None
    if request.instance_id is not None:
        former = group.static_member(request.instance_id)
    before = group.members.get(member_id)
    if former is not None and former.member_id != member_id:
        if request.member_id:
            static_member_of(group, request.instance_id or "", member_id)
        before = take_over(group, former, member_id, decision.records)
    elif before is None:
        before = Member(member_id)
    member = replace(
        before,
        instance_id=request.instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in request.protocols
            ],
        ),
    )
    if former is not None and may_replace_and_downgrade(machine, group, former):
        decision.records.clear()  # of the take-over: the whole group is recreated
        downgrade(machine, now, group, [former], decision, joining=member)
        epoch = group.epoch
    else:
        owned = embedded.owned_ids(subscription.owned_partitions, machine.topics)
        member = advance(machine, now, group, Change(before, member, owned), decision.records)
        epoch = member.epoch
        await_session(machine, now, group.group_id, member)
        await_classic_sync(machine, now, group.group_id, member)
    decision.reply = Joined(
        member_id, generation=epoch, protocol_type=PROTOCOL_TYPE, protocol=request.protocols[0][0]
    )
    return decision


def _subscription(group: ConsumerGroup, request: Join) -> ConsumerProtocolSubscription:
    offered = {name for name, _ in request.protocols}
    if request.protocol_type != PROTOCOL_TYPE or not offered:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group has the protocol type consumer")
    others = [
        {protocol.name for protocol in member.classic.supported_protocols}
        for member in group.members.values()
        if member.classic is not None and member.member_id != request.member_id
    ]
    if not offered.intersection(*others):
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the members have no protocol in common")
    try:
        return embedded.read_subscription(request.protocols[0][1])
    except MalformedMessage as error:
        raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read") from error


def _rebalance_timeout_ms(request: Join) -> int:
    """A member that names none has its session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


# --- SyncGroup ----------------------------------------------------------------------------------------------


def sync(machine: Groups, now: Now, group: ConsumerGroup, request: Sync) -> Decision:
    try:
        member = _classic_member(group, request.member_id, request.instance_id)
        assert member.classic is not None
        _check_generation(member, request.generation)
        chosen = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (
            None,
            chosen.name,
        ):
            raise GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member joined with another protocol")
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            await_classic_join(machine, now, group.group_id, member)
            raise GroupError(ErrorCode.REBALANCE_IN_PROGRESS, "the group has a newer generation: join again")
    except GroupError as refused:
        return Decision(Synced(refused.code))
    machine.timers.cancel((CLASSIC_SYNC, group.group_id, member.member_id))
    await_session(machine, now, group.group_id, member)
    return Decision(
        Synced(
            protocol_type=PROTOCOL_TYPE,
            protocol=chosen.name,
            assignment=embedded.write_assignment(member.assigned, bytes(chosen.metadata), machine.topics),
        )
    )


# --- Heartbeat ----------------------------------------------------------------------------------------------


def heartbeat(
    machine: Groups, now: Now, group: ConsumerGroup, generation: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    try:
        member = _classic_member(group, member_id, instance_id)
        _check_generation(member, generation)
    except GroupError as refused:
        return refused.code
    await_session(machine, now, group.group_id, member)
    # A member that has to give something up has not reached the group's epoch either.
    has_next_step = member.epoch < group.epoch or (
        member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_release(member)
    )
    if has_next_step:
        await_classic_join(machine, now, group.group_id, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


# --- LeaveGroup ---------------------------------------------------------------------------------------------


def leave(machine: Groups, now: Now, group: ConsumerGroup, leaving: Sequence[Leaving]) -> Decision:
    """Also members of the consumer protocol, whom an admin names here."""
    errors: list[ErrorCode] = []
    members: dict[str, Member] = {}
    for identity in leaving:
        try:
            member = _leaving_member(group, identity.member_id, identity.instance_id)
        except GroupError as refused:
            errors.append(refused.code)
        else:
            errors.append(ErrorCode.NONE)
            members[member.member_id] = member
    decision = remove_members(machine, now, group, list(members.values()))
    decision.reply = Left(members=tuple(errors))
    return decision


def _leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is not None:
        found = group.static_members.get(instance_id, "")
        return static_member_of(group, instance_id, member_id or found)
    return known_member(group, member_id)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    member = _leaving_member(group, member_id, instance_id) if member_id else None
    if member is None or member.classic is None:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of the classic protocol"
        )
    return member


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise GroupError(ErrorCode.ILLEGAL_GENERATION, f"the member is at generation {member.epoch}")
