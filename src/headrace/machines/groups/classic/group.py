"""State of a classic group: its record in the log, and the rebalance in memory.

The log has only the newest `GroupMetadataValue` (`recorded`): it is written when a leader sends its
assignment and when the last member has left. Everything else (waiting requests, the generation that is being
prepared) is in memory. After a restart the group is as its record says, and members that were rebalancing
join again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from enum import Enum
from functools import cache

from headrace.base.limits import MEMBER_OVERHEAD_BYTES
from headrace.machines.coordination import Ticket
from headrace.machines.groups.classic.requests import Protocols
from headrace.machines.groups.group import Committer, ListedGroup
from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from headrace.protocol.errors import ErrorCode, MalformedMessage
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


@cache
def _subscription_reader() -> Callable[[bytes, int, bool], ConsumerProtocolSubscription]:
    """What reads a subscription behind its version: all versions begin with the fields of version 0."""
    return codec(ConsumerProtocolSubscription, 0).decode


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Member:
    """A member: its ids, protocols, assignment, and waiting requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # it never got a generation, and so it cannot send heartbeats
        self.join_ticket: Ticket | None = None  # a ticket is never None
        self.sync_ticket: Ticket | None = None

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer; while it does, it sends no heartbeats and does not time out."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def copied(self) -> Member:
        """By hand: large groups are copied for each decision while nothing can be written."""
        member = Member(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
        )
        member.assignment = self.assignment
        member.is_new = self.is_new
        member.join_ticket = self.join_ticket
        member.sync_ticket = self.sync_ticket
        return member

    def metadata_of(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class ClassicGroup:
    """One group; `recorded` is changed by replay alone, all the rest is memory.

    Invariants: the leader is a member; every static member's instance id names it; `joining` counts the
    members whose join waits for an answer; `supporters` counts the members that have a protocol.
    """

    __slots__ = (
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_extended",
        "joining",
        "leader",
        "members",
        "pending",
        "previous_state",
        "protocol",
        "protocol_type",
        "recorded",
        "state_ms",
        "static_members",
        "status",
        "subscribed_topics",
        "supporters",
        "unsynced",
    )

    def __init__(self, group_id: str, wall_ms: int | None = None) -> None:
        self.group_id = group_id
        self.recorded: GroupMetadataValue | None = None  # None: a group that only commits offsets
        self.status = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_ms = wall_ms  # since when the state holds; None: the record is too old to say
        self.generation = 0
        self.protocol_type: str | None = None  # None: nobody ever joined
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending: set[str] = set()  # member ids that were given out, and did not join with them yet
        self.unsynced: set[str] = set()  # members that got this generation and did not sync yet
        self.joining = 0
        self.subscribed_topics: set[str] | None = None  # None: unknown, or not a group of consumers
        self.is_extended = False  # somebody joined during the initial delay
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.supporters: dict[str, int] = {}

    # --- the record -------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Restores the group from its record; a new coordinator does not know the rebalance that was in
        memory.
        """
        value = self.recorded
        if value is None:
            return
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        self.members, self.static_members, self.supporters = {}, {}, {}
        for kept in value.members:
            protocols = ((value.protocol or "", bytes(kept.subscription)),)
            timeout_ms = kept.session_timeout if kept.rebalance_timeout == -1 else kept.rebalance_timeout
            member = Member(
                kept.member_id,
                kept.group_instance_id,
                kept.client_id,
                kept.client_host,
                timeout_ms,
                kept.session_timeout,
                protocols,
            )
            member.assignment = bytes(kept.assignment)
            self._seat(member)
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)
        self.status = State.STABLE if self.members else State.EMPTY
        self.previous_state = self.status
        self.subscribed_topics = self._subscribed_topics()

    def record(self) -> Record:
        """The group as it is now."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=-1 if self.state_ms is None else self.state_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata_of(self.protocol),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )
        return Record(GroupMetadataKey(group=self.group_id), value)

    def birth_record(self) -> Record:
        """What is written when the first member asks for a group that does not exist yet."""
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=self.state_ms or -1,
        )
        return Record(GroupMetadataKey(group=self.group_id), value)

    def tombstones(self) -> list[Record]:
        return [Record(GroupMetadataKey(group=self.group_id), None)]

    def state(self) -> GroupMetadataValue | None:
        return self.recorded

    # --- members ----------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str, ticket: Ticket) -> None:
        """A new member, which waits for its first generation."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.pending.discard(member.member_id)
        self._seat(member)
        self.await_join(member, ticket)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.joining -= member.join_ticket is not None
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
            if self.leader == member_id:
                self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)

    def replace_static(self, old: Member, member_id: str) -> Member:
        """The same instance joined again: the new member takes over everything from the old one but its
        id.
        """
        assert old.instance_id is not None
        assert old.join_ticket is None, "whoever waits is answered before it is replaced"
        new = Member(
            member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
        )
        new.assignment = old.assignment
        was_leader = self.leader == old.member_id
        self.remove(old.member_id)
        self._seat(new)
        if was_leader:
            self.leader = member_id
        return new

    def update(self, member: Member, protocols: Protocols) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def await_join(self, member: Member, ticket: Ticket) -> Ticket | None:
        """The member waits for the next generation; returns the ticket that waited for it before."""
        displaced, member.join_ticket = member.join_ticket, ticket
        self.joining += displaced is None
        return displaced

    def take_join_ticket(self, member: Member) -> Ticket | None:
        ticket, member.join_ticket = member.join_ticket, None
        self.joining -= ticket is not None
        return ticket

    def _seat(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count(member, 1)

    def _count(self, member: Member, change: int) -> None:
        for name in member.protocol_names:
            self.supporters[name] = self.supporters.get(name, 0) + change

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Checks that a static member has the member id of its instance id, and others are members."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- states and generations -------------------------------------------------------------------------

    def enter(self, status: State, wall_ms: int) -> None:
        self.previous_state, self.status, self.state_ms = self.status, status, wall_ms

    @property
    def have_all_joined(self) -> bool:
        return len(self.members) <= self.joining and not self.pending

    @property
    def is_unled(self) -> bool:
        """Its record was written when it was downgraded: no leader has assigned anything yet."""
        return bool(self.members) and self.recorded is not None and self.recorded.leader is None

    @property
    def is_initial_rebalance(self) -> bool:
        return self.status is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def not_rejoined(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.join_ticket is None)

    def elect_joined_leader(self) -> bool:
        """Makes a member that has joined the leader; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader = member.member_id
                return True
        return False

    def begin_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.protocol = self.voted_protocol() if self.members else None
        self.subscribed_topics = self._subscribed_topics()
        self.enter(State.COMPLETING_REBALANCE if self.members else State.EMPTY, wall_ms)
        self.unsynced.clear()

    # --- protocols --------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether one of these protocols is supported by all members."""
        if self.status is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supporters.get(name, 0) == everybody for name, _ in protocols
        )

    def voted_protocol(self) -> str:
        """Each member votes for the first of its protocols that all have; the first with most votes wins."""
        everybody = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.supporters[name] == everybody:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def _subscribed_topics(self) -> set[str] | None:
        """Consumers say in their metadata what they subscribe to; None if it cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return set()
        read = _subscription_reader()
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(read(member.metadata_of(self.protocol), 2, True).topics)
        except MalformedMessage:
            return None
        return topics

    # --- what every group is asked ----------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.status is State.EMPTY

    def check_commit(self, committer: Committer, *, is_transactional: bool) -> ErrorCode:
        _, member_id, instance_id, epoch, _ = committer
        if epoch < 0 and self.status is State.EMPTY:
            return ErrorCode.NONE  # an admin, or a consumer that picks its partitions itself
        if epoch >= 0 or member_id or instance_id is not None:
            error = self.check_member(member_id, instance_id)
            if error:
                return error
            if epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and self.status is State.COMPLETING_REBALANCE:
            # The member knows the new generation, so it has to sync before it may speak for its partitions.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        if self.status is not State.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.status is State.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Consumers whose subscription cannot be read may be subscribed to anything."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def expires_offsets(self) -> bool:
        if self.protocol_type is None or self.status is State.EMPTY:
            return True
        return self.status is State.STABLE and self.subscribed_topics is not None

    def empty_since_ms(self) -> int | None:
        return self.state_ms if self.protocol_type is not None and self.status is State.EMPTY else None

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.status.value, "classic")

    def members_bytes(self) -> int:
        return MEMBER_OVERHEAD_BYTES * (len(self.members) + len(self.pending)) + sum(
            len(member.assignment) + sum(len(metadata) for _, metadata in member.protocols)
            for member in self.members.values()
        )

    def saved(self) -> Callable[[], ClassicGroup]:
        """All of it is copied, whatever deciding may change."""
        twin = copy(self)
        twin.members = {member_id: member.copied() for member_id, member in self.members.items()}
        twin.static_members = dict(self.static_members)
        twin.pending, twin.unsynced = set(self.pending), set(self.unsynced)
        twin.supporters = dict(self.supporters)
        return lambda: twin
