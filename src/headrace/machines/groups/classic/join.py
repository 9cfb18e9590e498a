"""JoinGroup: a member enters, comes back, or changes what it can do.

Versions: from 4 on a dynamic member gets its id first and joins with it, so that an answer that is lost
leaves no member behind (KIP-394); from 5 on a member may have an instance id (KIP-345); from 9 on a static
leader that came back is told that nothing has to be assigned (KIP-814). Version 0 has no rebalance timeout.
"""

from __future__ import annotations

from headrace.base.time import Now
from headrace.machines.coordination import Caller, Decision, Ticket
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.classic.member import Member, protocols_of
from headrace.machines.groups.classic.rebalance import current_generation, refusal
from headrace.machines.groups.shard import Shard
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupRequest

KNOWN_MEMBER_ID_VERSION = 4
SKIPS_ASSIGNMENT_VERSION = 9


class Join:
    """One JoinGroup request, and the decision that grows out of it."""

    __slots__ = ("caller", "decision", "group", "now", "request", "shard", "ticket", "version")

    def __init__(
        self,
        shard: Shard,
        now: Now,
        group: ClassicGroup,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        ticket: Ticket,
    ) -> None:
        self.shard = shard
        self.now = now
        self.group = group
        self.request = request
        self.version = version
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
        elif member_id in group.pending and request.group_instance_id is None:
            self._add(member_id)  # only dynamic members are given an id beforehand
        else:
            error = group.check_member(member_id, request.group_instance_id)
            if error:
                self._refuse(error, member_id)
            else:
                self._rejoin(group.members[member_id])
        return self.decision

    def _refuse(self, error: ErrorCode, member_id: str) -> None:
        self.decision.reply = refusal(error, member_id)

    def _has_room(self) -> bool:
        group, size_max = self.group, self.shard.settings.group_max_size
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
        instance_id = request.group_instance_id
        member_id = self.shard.fresh_member_id(self.caller.client_id if instance_id is None else instance_id)
        if instance_id is not None and instance_id in group.static_members:
            self._take_over(group.members[group.static_members[instance_id]], member_id)
        elif instance_id is None and self.version >= KNOWN_MEMBER_ID_VERSION:
            group.pending.add(member_id)
            session = (rebalance.SESSION, group.group_id, member_id)
            self.shard.timers.set(session, self.now.after_ms(request.session_timeout_ms))
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(member_id)

    def _add(self, member_id: str) -> None:
        request, group = self.request, self.group
        member = Member(
            member_id,
            request.group_instance_id,
            self.caller.client_id,
            self.caller.client_host,
            self._rebalance_timeout_ms(),
            request.session_timeout_ms,
            protocols_of(request.protocols),
        )
        member.is_new = True
        if group.is_initial_rebalance:
            group.is_extended = True
        group.add(member, request.protocol_type, self.ticket)
        session = (rebalance.SESSION, group.group_id, member_id)
        self.shard.timers.set(session, self.now.after_ms(rebalance.NEW_MEMBER_JOIN_TIMEOUT_MS))
        rebalance.prepare_or_complete(self.shard, self.now, group, self.decision)

    def _rebalance_timeout_ms(self) -> int:
        return self.request.session_timeout_ms if self.version == 0 else self.request.rebalance_timeout_ms

    # --- members that come again ------------------------------------------------------------------------

    def _rejoin(self, member: Member) -> None:
        group = self.group
        is_same = member.protocols == protocols_of(self.request.protocols)
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
            rebalance.prepare_or_complete(self.shard, self.now, group, self.decision)

    def _update(self, member: Member) -> None:
        self.group.update(member, protocols_of(self.request.protocols))
        member.rebalance_timeout_ms = self._rebalance_timeout_ms()
        member.session_timeout_ms = self.request.session_timeout_ms
        displaced = self.group.await_join(member, self.ticket)
        if displaced is not None:
            # The same member asked twice; the first time nobody listens to the answer any more.
            answer = refusal(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.decision.answers.append((displaced, answer))

    # --- static members that were restarted -------------------------------------------------------------

    def _take_over(self, old: Member, member_id: str) -> None:
        group, shard = self.group, self.shard
        former_leader = group.leader or ""
        rebalance.dismiss(group, old, ErrorCode.FENCED_INSTANCE_ID, self.decision)
        shard.timers.cancel((rebalance.SESSION, group.group_id, old.member_id))
        member = group.replace_static(old, member_id)
        self._update(member)
        rebalance.restart_session(shard, self.now, group, member)
        if group.status is State.STABLE and group.voted_protocol() == group.protocol:
            # It goes on where it stopped. Only its new name has to be written down.
            group.take_join_ticket(member)
            self.decision.records.append(group.record())
            if self.version >= SKIPS_ASSIGNMENT_VERSION:
                is_leader = member_id == group.leader
                self.decision.reply = current_generation(group, member, skip_assignment=is_leader)
            else:
                # Told of the leader's former name, it takes itself for a follower, and assigns nothing.
                self.decision.reply = current_generation(group, member, leader=former_leader, members=[])
        else:
            rebalance.prepare_or_complete(shard, self.now, group, self.decision)
