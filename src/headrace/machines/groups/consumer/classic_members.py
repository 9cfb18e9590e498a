"""Members of the classic protocol inside a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A generation is the member's epoch; nobody leads, the coordinator assigns. A join is answered at once, with
the member's next step; a heartbeat tells the member to join again whenever there is a further step to be
made.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.base.ids import new_id_text
from headrace.base.time import Now
from headrace.machines.coordination import Caller, Decision
from headrace.machines.groups.consumer import embedded
from headrace.machines.groups.consumer.departure import remove_members
from headrace.machines.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from headrace.machines.groups.consumer.member import Member, MemberState
from headrace.machines.groups.consumer.membership import check_room, known_member, static_member_of, take_over
from headrace.machines.groups.consumer.migration import downgrade, may_replace_and_downgrade
from headrace.machines.groups.consumer.progress import Change, advance
from headrace.machines.groups.consumer.refusal import Refused
from headrace.machines.groups.consumer.timing import (
    CLASSIC_SYNC,
    await_classic_join,
    await_classic_sync,
    await_session,
)
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records.groups import ClassicMemberMetadata, ClassicProtocol
from headrace.protocol.errors import ErrorCode, MalformedMessage
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

KNOWN_MEMBER_ID_VERSION = 4  # of JoinGroup: from here on a dynamic member gets its id first (KIP-394)

# --- JoinGroup ----------------------------------------------------------------------------------------------


def join(
    shard: Shard, now: Now, group: ConsumerGroup, request: JoinGroupRequest, version: int, caller: Caller
) -> Decision:
    try:
        return _join(shard, now, group, request, version, caller)
    except Refused as refused:
        return Decision(
            JoinGroupResponse(error_code=refused.code, protocol_name="", member_id=request.member_id)
        )


def _join(
    shard: Shard, now: Now, group: ConsumerGroup, request: JoinGroupRequest, version: int, caller: Caller
) -> Decision:
    if shard.settings.group_consumer_migration_policy.lower() == "disabled":
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group has another protocol")
    member_id = request.member_id or new_id_text(shard.dice)
    check_room(shard, group, member_id, request.group_instance_id)
    subscription = _subscription(group, request)
    if not request.member_id and request.group_instance_id is None and version >= KNOWN_MEMBER_ID_VERSION:
        return Decision(
            JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, protocol_name="", member_id=member_id)
        )

    decision = Decision()
    former = None
    if request.group_instance_id is not None:
        former = group.static_member(request.group_instance_id)
    before = group.members.get(member_id)
    if former is not None and former.member_id != member_id:
        if request.member_id:
            static_member_of(group, request.group_instance_id or "", member_id)
        before = take_over(group, former, member_id, decision.records)
    elif before is None:
        before = Member(member_id)
    member = replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=bytes(protocol.metadata))
                for protocol in request.protocols
            ],
        ),
    )
    if former is not None and may_replace_and_downgrade(shard, group, former):
        decision.records.clear()  # of the take-over: the whole group is recreated
        downgrade(shard, now, group, [former], decision, joining=member)
        epoch = group.epoch
    else:
        owned = embedded.owned_ids(subscription.owned_partitions, shard.topics)
        member = advance(shard, now, group, Change(before, member, owned), decision.records)
        epoch = member.epoch
        await_session(shard, now, group.group_id, member)
        await_classic_sync(shard, now, group.group_id, member)
    decision.reply = JoinGroupResponse(
        generation_id=epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        member_id=member_id,
    )
    return decision


def _subscription(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    offered = {protocol.name for protocol in request.protocols}
    if request.protocol_type != PROTOCOL_TYPE or not offered:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is one of consumers")
    others = [
        {protocol.name for protocol in member.classic.supported_protocols}
        for member in group.members.values()
        if member.classic is not None and member.member_id != request.member_id
    ]
    if not offered.intersection(*others):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol is shared by all members")
    try:
        return embedded.read_subscription(bytes(request.protocols[0].metadata))
    except MalformedMessage as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read") from error


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has none of its own."""
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


# --- SyncGroup ----------------------------------------------------------------------------------------------


def sync(shard: Shard, now: Now, group: ConsumerGroup, request: SyncGroupRequest) -> Decision:
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        assert member.classic is not None
        _check_generation(member, request.generation_id)
        chosen = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            chosen.name,
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member joined with another protocol")
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            await_classic_join(shard, now, group.group_id, member)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "the group has moved on")
    except Refused as refused:
        return Decision(SyncGroupResponse(error_code=refused.code))
    shard.timers.cancel((CLASSIC_SYNC, group.group_id, member.member_id))
    await_session(shard, now, group.group_id, member)
    return Decision(
        SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=chosen.name,
            assignment=embedded.write_assignment(member.assigned, bytes(chosen.metadata), shard.topics),
        )
    )


# --- Heartbeat ----------------------------------------------------------------------------------------------


def heartbeat(shard: Shard, now: Now, group: ConsumerGroup, request: HeartbeatRequest) -> Decision:
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
    except Refused as refused:
        return Decision(HeartbeatResponse(error_code=refused.code))
    await_session(shard, now, group.group_id, member)
    # A member that has to give something up has not reached the group's epoch either.
    has_next_step = member.epoch < group.epoch or (
        member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_release(member)
    )
    if has_next_step:
        await_classic_join(shard, now, group.group_id, member)
        return Decision(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    return Decision(HeartbeatResponse())


# --- LeaveGroup ---------------------------------------------------------------------------------------------


def leave(shard: Shard, now: Now, group: ConsumerGroup, leaving: list[MemberIdentity]) -> Decision:
    """Also members of the consumer protocol, whom an admin names here."""
    responses: list[MemberResponse] = []
    members: dict[str, Member] = {}
    for identity in leaving:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        response = MemberResponse(member_id=member_id, group_instance_id=instance_id)
        responses.append(response)
        try:
            member = _leaving_member(group, member_id, instance_id)
        except Refused as refused:
            response.error_code = refused.code
        else:
            members[member.member_id] = member
    decision = remove_members(shard, now, group, list(members.values()))
    decision.reply = LeaveGroupResponse(members=responses)
    return decision


def _leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is not None:
        found = group.static_members.get(instance_id, "")
        return static_member_of(group, instance_id, member_id or found)
    return known_member(group, member_id)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    member = _leaving_member(group, member_id, instance_id) if member_id else None
    if member is None or member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of the classic protocol")
    return member


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"the member is at generation {member.epoch}")
