"""From one generation to the next: who has to join again, for how long we wait, and who is left behind.

Every function adds what follows from it to the decision that is being made.
"""

from __future__ import annotations

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.classic.member import Member
from headrace.machines.groups.shard import Shard
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupResponse

# Kinds of timers. A member's session; the time for joining; the time for syncing; a group that came over from
# the new protocol and has to begin with a rebalance.
SESSION, JOIN, SYNC, ADOPT = "classic session", "classic join", "classic sync", "classic adopt"

# A new member does not know its id until its join is answered, so it cannot send heartbeats, and its
# connection tells nothing while it waits. Clients give up before this and join again: without an end, each
# attempt would leave a member behind that nobody is. Kafka's figure.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def take_charge(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """A coordinator that read the group's record begins to look after its members."""
    group.restore()
    for member in group.members.values():
        restart_session(shard, now, group, member)
    if len(group.members) > shard.settings.group_max_size:
        prepare(shard, now, group, decision)


def adopt(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """The ADOPT timer rang: members that came over from the new protocol are looked after from now on.

    Requests may have come before it: whoever waits already goes on waiting, and a rebalance that one of them
    has begun is the one that the group needs.
    """
    for member in group.members.values():
        if not member.waits and shard.timers.get((SESSION, group.group_id, member.member_id)) is None:
            restart_session(shard, now, group, member)
    if group.status is State.STABLE:
        prepare(shard, now, group, decision)


def prepare(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Asks everybody to join again."""
    if group.status is State.COMPLETING_REBALANCE:
        spread_assignments(shard, now, group, {}, ErrorCode.REBALANCE_IN_PROGRESS, decision)
    shard.timers.cancel((SYNC, group.group_id, ""))
    is_first = group.status is State.EMPTY
    group.enter(State.PREPARING_REBALANCE, now.wall_ms)
    if is_first:
        # Members of a new group come one after the other: a rebalance for each would be in vain.
        delay_ms = shard.settings.group_initial_rebalance_delay_ms
        _wait_for_more(shard, now, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.have_all_joined:
        complete(shard, now, group, decision)
    else:
        _await_joins(shard, now, group)


def prepare_or_complete(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Somebody came, changed or went."""
    if group.status is State.PREPARING_REBALANCE:
        maybe_complete(shard, now, group, decision)
    else:
        prepare(shard, now, group, decision)


def maybe_complete(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """The last one we waited for may have joined or gone; the initial delay is waited out in any case.

    The time for joining runs on: a member that comes and goes must not hold up the others for ever.
    """
    if group.status is State.PREPARING_REBALANCE and not group.is_initial_rebalance and group.have_all_joined:
        complete(shard, now, group, decision)


def _await_joins(shard: Shard, now: Now, group: ClassicGroup) -> None:
    shard.timers.set((JOIN, group.group_id, ""), now.after_ms(group.rebalance_timeout_ms))


def join_time_over(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """The JOIN timer rang."""
    if group.status is not State.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.is_extended and group.initial_remaining_ms:
        delay_ms = min(shard.settings.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        _wait_for_more(shard, now, group, delay_ms, remaining_ms)
    else:
        complete(shard, now, group, decision)


def _wait_for_more(shard: Shard, now: Now, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    group.is_extended = False
    group.initial_delay_ms, group.initial_remaining_ms = delay_ms, remaining_ms
    shard.timers.set((JOIN, group.group_id, ""), now.after_ms(delay_ms))


def complete(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """The next generation is whoever has joined; static members keep their place until their session ends."""
    shard.timers.cancel((JOIN, group.group_id, ""))
    for member in [member for member in group.not_rejoined() if member.instance_id is None]:
        group.remove(member.member_id)
        shard.timers.cancel((SESSION, group.group_id, member.member_id))
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none of them is here: wait until they join, or their sessions end.
        _await_joins(shard, now, group)
        return
    group.begin_generation(now.wall_ms)
    if group.status is State.EMPTY:
        decision.records.append(group.record())
        return
    for member in group.members.values():
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            decision.answers.append((ticket, current_generation(group, member)))
        member.is_new = False
        group.unsynced.add(member.member_id)
        restart_session(shard, now, group, member)
    shard.timers.set((SYNC, group.group_id, ""), now.after_ms(group.rebalance_timeout_ms))


def current_generation(group: ClassicGroup, member: Member, **changes: object) -> JoinGroupResponse:
    """What a member that belongs to the generation is told; the leader learns who else does."""
    response = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=members_for_leader(group) if member.member_id == group.leader else [],
    )
    for name, value in changes.items():
        setattr(response, name, value)
    return response


def members_for_leader(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata_of(group.protocol),
        )
        for member in group.members.values()
    ]


def spread_assignments(
    shard: Shard,
    now: Now,
    group: ClassicGroup,
    assignments: dict[str, bytes],
    error: ErrorCode,
    decision: Decision,
) -> None:
    """Gives everybody its share, which is nothing if there is an error; whoever waits for it is answered."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            decision.answers.append((ticket, share_of(group, member, error)))
            # While it waited, its session was not looked after. Of the others, one that waits for its first
            # generation has more time than a session, and those that did not sync have none to be given.
            restart_session(shard, now, group, member)


def share_of(group: ClassicGroup, member: Member, error: ErrorCode = ErrorCode.NONE) -> SyncGroupResponse:
    if error:
        return SyncGroupResponse(error_code=error)
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def restart_session(shard: Shard, now: Now, group: ClassicGroup, member: Member) -> None:
    shard.timers.set((SESSION, group.group_id, member.member_id), now.after_ms(member.session_timeout_ms))


def sync_time_over(shard: Shard, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Whoever got a generation and never asked for its share is gone: the rest begins again."""
    if not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        shard.timers.cancel((SESSION, group.group_id, member_id))
        dismiss(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, decision)
        group.remove(member_id)
    prepare(shard, now, group, decision)


def dismiss(group: ClassicGroup, member: Member, error: ErrorCode, decision: Decision) -> None:
    """Answers whatever the member waits for: it is about to be no member any more."""
    ticket = group.take_join_ticket(member)
    if ticket is not None:
        member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        decision.answers.append((ticket, refusal(error, member_id)))
    ticket, member.sync_ticket = member.sync_ticket, None
    if ticket is not None:
        decision.answers.append((ticket, SyncGroupResponse(error_code=error)))


def refusal(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name="", member_id=member_id)
