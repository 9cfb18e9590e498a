"""Rebalances of a classic group: from one generation to the next, with their timeouts; and JoinGroup, with
which a member enters, comes back, or changes its protocols.

Every function adds its records and answers to the decision that is being made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.coordination import Caller, Decision, Ticket
from headrace.machines.groups.classic.group import ClassicGroup, Member, State
from headrace.machines.groups.classic.requests import Join, Joined, JoinedMember, Synced
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

# Kinds of timers. A member's session; the time for joining; the time for syncing; a group that came over from
# the new protocol and has to begin with a rebalance.
SESSION, JOIN, SYNC, ADOPT = "classic session", "classic join", "classic sync", "classic adopt"

# A new member does not know its id until its join is answered, so it cannot send heartbeats, and its
# connection tells nothing while it waits. Clients give up before this and join again: without an end, each
# attempt would leave a member behind that nobody is. Kafka's figure.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def take_charge(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Starts the session timers of the members, after the group's record was loaded."""
    group.restore()
    for member in group.members.values():
        restart_session(machine, now, group, member)
    if len(group.members) > machine.settings.group_max_size or group.is_unled:
        prepare(machine, now, group, decision)


def adopt(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """The ADOPT timer expired: session timers start for members that came from the new protocol.

    Requests may have arrived before: those that wait continue to wait, and a rebalance that one of them
    started is the one that the group needs.
    """
    for member in group.members.values():
        if not member.waits and machine.timers.get((SESSION, group.group_id, member.member_id)) is None:
            restart_session(machine, now, group, member)
    if group.status is State.STABLE:
        prepare(machine, now, group, decision)


def prepare(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Starts a rebalance: all members have to join again."""
    if group.status is State.COMPLETING_REBALANCE:
        spread_assignments(machine, now, group, {}, ErrorCode.REBALANCE_IN_PROGRESS, decision)
    machine.timers.cancel((SYNC, group.group_id, ""))
    is_first = group.status is State.EMPTY
    group.enter(State.PREPARING_REBALANCE, now.wall_ms)
    if is_first:
        # Members of a new group come one after the other: a rebalance for each would be in vain.
        delay_ms = machine.settings.group_initial_rebalance_delay_ms
        _wait_for_more(machine, now, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.have_all_joined:
        complete(machine, now, group, decision)
    else:
        _await_joins(machine, now, group)


def prepare_or_complete(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """A member joined, changed or left: starts a rebalance, or completes the current one."""
    if group.status is State.PREPARING_REBALANCE:
        maybe_complete(machine, now, group, decision)
    else:
        prepare(machine, now, group, decision)


def maybe_complete(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Completes the rebalance if all expected members have joined or left; the initial delay is kept in any
    case.

    The join timeout is not extended: a member that joins and leaves repeatedly must not delay the others for
    ever.
    """
    if group.status is State.PREPARING_REBALANCE and not group.is_initial_rebalance and group.have_all_joined:
        complete(machine, now, group, decision)


def _await_joins(machine: Groups, now: Now, group: ClassicGroup) -> None:
    machine.timers.set((JOIN, group.group_id, ""), now.after_ms(group.rebalance_timeout_ms))


def join_time_over(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """The JOIN timer rang."""
    if group.status is not State.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.is_extended and group.initial_remaining_ms:
        delay_ms = min(machine.settings.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        _wait_for_more(machine, now, group, delay_ms, remaining_ms)
    else:
        complete(machine, now, group, decision)


def _wait_for_more(machine: Groups, now: Now, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    group.is_extended = False
    group.initial_delay_ms, group.initial_remaining_ms = delay_ms, remaining_ms
    machine.timers.set((JOIN, group.group_id, ""), now.after_ms(delay_ms))


def complete(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Begins the next generation with the members that have joined; static members stay until their
    session ends.
    """
    machine.timers.cancel((JOIN, group.group_id, ""))
    for member in [member for member in group.not_rejoined() if member.instance_id is None]:
        group.remove(member.member_id)
        machine.timers.cancel((SESSION, group.group_id, member.member_id))
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none of them is here: wait until they join, or their sessions end.
        _await_joins(machine, now, group)
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
        restart_session(machine, now, group, member)
    machine.timers.set((SYNC, group.group_id, ""), now.after_ms(group.rebalance_timeout_ms))


def current_generation(group: ClassicGroup, member: Member) -> Joined:
    """The JoinGroup answer for a member of the generation; the leader also gets the list of members."""
    return Joined(
        member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=members_for_leader(group) if member.member_id == group.leader else (),
    )


def members_for_leader(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata_of(group.protocol))
        for member in group.members.values()
    )


def spread_assignments(
    machine: Groups,
    now: Now,
    group: ClassicGroup,
    assignments: Mapping[str, bytes],
    error: ErrorCode,
    decision: Decision,
) -> None:
    """Gives every member its assignment, or none after an error, and answers waiting SyncGroup requests."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            decision.answers.append((ticket, share_of(group, member, error)))
            # While it waited, its session was not looked after. Of the others, one that waits for its first
            # generation has more time than a session, and those that did not sync have none to be given.
            restart_session(machine, now, group, member)


def share_of(group: ClassicGroup, member: Member, error: ErrorCode = ErrorCode.NONE) -> Synced:
    if error:
        return Synced(error)
    return Synced(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)


def restart_session(machine: Groups, now: Now, group: ClassicGroup, member: Member) -> None:
    machine.timers.set((SESSION, group.group_id, member.member_id), now.after_ms(member.session_timeout_ms))


def sync_time_over(machine: Groups, now: Now, group: ClassicGroup, decision: Decision) -> None:
    """Removes members that joined and did not send SyncGroup in time: the others rebalance."""
    if not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        machine.timers.cancel((SESSION, group.group_id, member_id))
        dismiss(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, decision)
        group.remove(member_id)
    prepare(machine, now, group, decision)


def dismiss(group: ClassicGroup, member: Member, error: ErrorCode, decision: Decision) -> None:
    """Answers whatever the member waits for: it is about to be no member any more."""
    ticket = group.take_join_ticket(member)
    if ticket is not None:
        member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        decision.answers.append((ticket, Joined(member_id, error)))
    ticket, member.sync_ticket = member.sync_ticket, None
    if ticket is not None:
        decision.answers.append((ticket, Synced(error)))


# --- JoinGroup ----------------------------------------------------------------------------------------------


def join(
    machine: Groups, now: Now, group: ClassicGroup, request: Join, caller: Caller, ticket: Ticket
) -> Decision:
    return Joining(machine, now, group, request, caller, ticket).decide()


class Joining:
    """One request to join, and the decision that grows out of it."""

    __slots__ = ("caller", "decision", "group", "machine", "now", "request", "ticket")

    def __init__(
        self,
        machine: Groups,
        now: Now,
        group: ClassicGroup,
        request: Join,
        caller: Caller,
        ticket: Ticket,
    ) -> None:
        self.machine = machine
        self.now = now
        self.group = group
        self.request = request
        self.caller = caller
        self.ticket = ticket
        self.decision = Decision()

    def decide(self) -> Decision:
        request, group = self.request, self.group
        member_id = request.member_id
        if not self._has_room():
            group.remove(member_id)
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._enter()
        elif member_id in group.pending and request.instance_id is None:
            self._add(member_id)  # only dynamic members are given an id beforehand
        else:
            error = group.check_member(member_id, request.instance_id)
            if error:
                self._refuse(error, member_id)
            else:
                self._rejoin(group.members[member_id])
        return self.decision

    def _refuse(self, error: ErrorCode, member_id: str) -> None:
        self.decision.reply = Joined(member_id, error)

    def _has_room(self) -> bool:
        group, size_max = self.group, self.machine.settings.group_max_size
        member = group.members.get(self.request.member_id)
        if group.status is State.EMPTY:
            return True
        if group.status is State.PREPARING_REBALANCE:
            # The limit may have been lowered: of the members that come again, the last ones are turned away.
            return (member is not None and member.join_ticket is not None) or group.joining < size_max
        return member is not None or len(group.members) < size_max

    # --- new members ------------------------------------------------------------------------------------

    def _enter(self) -> None:
        request, group = self.request, self.group
        instance_id = request.instance_id
        member_id = self.machine.fresh_member_id(
            self.caller.client_id if instance_id is None else instance_id
        )
        if instance_id is not None and instance_id in group.static_members:
            self._take_over(group.members[group.static_members[instance_id]], member_id)
        elif instance_id is None and request.joins_twice:
            group.pending.add(member_id)
            session = (SESSION, group.group_id, member_id)
            self.machine.timers.set(session, self.now.after_ms(request.session_timeout_ms))
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(member_id)

    def _add(self, member_id: str) -> None:
        request, group = self.request, self.group
        member = Member(
            member_id,
            request.instance_id,
            self.caller.client_id,
            self.caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        if group.is_initial_rebalance:
            group.is_extended = True
        group.add(member, request.protocol_type, self.ticket)
        session = (SESSION, group.group_id, member_id)
        self.machine.timers.set(session, self.now.after_ms(NEW_MEMBER_JOIN_TIMEOUT_MS))
        prepare_or_complete(self.machine, self.now, group, self.decision)

    # --- members that come again ------------------------------------------------------------------------

    def _rejoin(self, member: Member) -> None:
        group = self.group
        is_same = member.protocols == self.request.protocols
        if group.status is State.EMPTY:
            self._refuse(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
        elif is_same and (
            group.status is State.COMPLETING_REBALANCE
            or (group.status is State.STABLE and member.member_id != group.leader)
        ):
            # It may have missed its answer: what it would learn from a rebalance it can learn now. The leader
            # of a stable group, however, comes again because it saw a reason to assign again.
            self.decision.reply = current_generation(group, member)
        else:
            self._update(member)
            prepare_or_complete(self.machine, self.now, group, self.decision)

    def _update(self, member: Member) -> None:
        self.group.update(member, self.request.protocols)
        member.rebalance_timeout_ms = self.request.rebalance_timeout_ms
        member.session_timeout_ms = self.request.session_timeout_ms
        displaced = self.group.await_join(member, self.ticket)
        if displaced is not None:
            # The same member asked twice; the first time nobody listens to the answer any more.
            answer = Joined(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self.decision.answers.append((displaced, answer))

    # --- static members that were restarted -------------------------------------------------------------

    def _take_over(self, old: Member, member_id: str) -> None:
        group, machine = self.group, self.machine
        former_leader = group.leader or ""
        dismiss(group, old, ErrorCode.FENCED_INSTANCE_ID, self.decision)
        machine.timers.cancel((SESSION, group.group_id, old.member_id))
        member = group.replace_static(old, member_id)
        self._update(member)
        restart_session(machine, self.now, group, member)
        if group.status is State.STABLE and group.voted_protocol() == group.protocol:
            # It goes on where it stopped. Only its new name has to be written down.
            group.take_join_ticket(member)
            self.decision.records.append(group.record())
            joined = current_generation(group, member)
            if self.request.can_skip_assignment:
                self.decision.reply = joined._replace(skip_assignment=member_id == group.leader)
            else:
                # Told of the leader's former name, it takes itself for a follower, and assigns nothing.
                self.decision.reply = joined._replace(leader=former_leader, members=())
        else:
            prepare_or_complete(machine, self.now, group, self.decision)
