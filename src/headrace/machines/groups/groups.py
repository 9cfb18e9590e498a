"""All groups of one partition of `__consumer_offsets`: what comes in goes to the kind of group it means.

The contract is that of every coordinator (see `machines.coordination`): requests are decided, their records
appended and replayed. A join or sync is answered through its ticket as soon as its rebalance is over, which
may be in the very decision it brings about; `reply` is None then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.base.time import Instant, Now
from headrace.machines.coordination import Caller, Decision, Ticket, Writer
from headrace.machines.groups import commits, consumer, expiry
from headrace.machines.groups.classic import departure, join, rebalance, sync
from headrace.machines.groups.classic.describe import described, unknown
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.consumer import ConsumerGroup, classic_members
from headrace.machines.groups.invariants import check_groups
from headrace.machines.groups.offsets import tombstone
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import consumer_group_describe
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.describe_groups import DescribedGroup
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headrace.protocol.messages.list_groups import ListedGroup
from headrace.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest
from headrace.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

EXPIRY = ("offsets expiry", "", "")
LEAVES_MANY_VERSION = 3  # of LeaveGroup
NAMES_PROTOCOL_VERSION = 5  # of SyncGroup, which has to say from here on what it thinks was chosen


class Groups(Shard):
    # --- members of classic groups ----------------------------------------------------------------------

    def join(
        self, now: Now, request: JoinGroupRequest, version: int, caller: Caller, ticket: Ticket
    ) -> Decision:
        settings, group_id = self.settings, request.group_id
        if not group_id:
            return Decision(rebalance.refusal(ErrorCode.INVALID_GROUP_ID, request.member_id))
        if (
            not settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            return Decision(rebalance.refusal(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return join.Join(self, now, group, request, version, caller, ticket).decide()
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return classic_members.join(self, now, group, request, version, caller)
        return self._found(now, request, version, caller, ticket)

    def _found(
        self, now: Now, request: JoinGroupRequest, version: int, caller: Caller, ticket: Ticket
    ) -> Decision:
        """The group comes into being with its first member, in place of an empty one of the new protocol."""
        if request.member_id:
            return Decision(rebalance.refusal(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        group = ClassicGroup(request.group_id, now.wall_ms)
        former = self.groups.get(request.group_id)
        birth = [] if former is None else former.tombstones()
        birth.append(group.birth_record())
        self.groups[request.group_id] = group
        decision = join.Join(self, now, group, request, version, caller, ticket).decide()
        decision.records[:0] = birth
        return decision

    def sync(
        self, now: Now, request: SyncGroupRequest, version: int, caller: Caller, ticket: Ticket
    ) -> Decision:
        if not request.group_id:
            return Decision(SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if version >= NAMES_PROTOCOL_VERSION and not names_protocol:
            return Decision(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return sync.sync(self, now, group, request, ticket)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(self, now, group, request)
        return Decision(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, now: Now, request: HeartbeatRequest) -> Decision:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            error = sync.heartbeat(self, now, group, request)
        elif isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(self, now, group, request)
        elif not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        else:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        return Decision(HeartbeatResponse(error_code=error))

    def leave(self, now: Now, request: LeaveGroupRequest, version: int) -> Decision:
        if not request.group_id:
            return Decision(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        leaving = request.members
        if version < LEAVES_MANY_VERSION:
            leaving = [MemberIdentity(member_id=request.member_id)]
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            decision = departure.leave(self, now, group, leaving)
        elif isinstance(group, ConsumerGroup):
            decision = classic_members.leave(self, now, group, leaving)
        else:
            decision = Decision(departure.refusal(leaving, ErrorCode.UNKNOWN_MEMBER_ID))
        if version < LEAVES_MANY_VERSION:
            decision.reply = LeaveGroupResponse(error_code=decision.reply.members[0].error_code)
        return decision

    # --- members of groups of the new protocol ----------------------------------------------------------

    def consumer_heartbeat(
        self,
        now: Now,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        may_see: consumer.MaySee = lambda topic: True,
    ) -> Decision:
        """`may_see` says which topics the member's patterns may find."""
        return consumer.heartbeat(self, now, request, version, caller, may_see)

    # --- offsets ----------------------------------------------------------------------------------------

    def commit_offsets(self, now: Now, request: OffsetCommitRequest, version: int) -> Decision:
        return commits.commit(self, now, request, version)

    def commit_again(
        self,
        now: Now,
        request: OffsetCommitRequest,
        version: int,
        before: Record,
        offset: int,
        leader_epoch: int,
    ) -> Record | None:
        return commits.commit_again(self, now, request, version, before, offset, leader_epoch)

    def commit_transactional(self, now: Now, request: TxnOffsetCommitRequest, version: int) -> Decision:
        return commits.commit_transactional(self, now, request, version)

    def fetch_offsets(
        self, now: Now, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        return commits.fetch(self, group, require_stable)

    def delete_offsets(self, now: Now, request: OffsetDeleteRequest) -> Decision:
        return commits.delete(self, request)

    def forget_topics(self, now: Now, names: Iterable[str]) -> list[Decision]:
        """Topics were deleted: their offsets mean nothing any more."""
        return expiry.forget_topics(self, names)

    # --- admin ------------------------------------------------------------------------------------------

    def describe(self, now: Now, group_id: str, version: int) -> DescribedGroup:
        """DescribeGroups: classic groups only."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return described(group)
        return unknown(group_id, version, "not found" if group is None else "is not a classic group")

    def describe_consumer(self, now: Now, group_id: str) -> consumer_group_describe.DescribedGroup:
        """ConsumerGroupDescribe: groups of the new protocol only."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return consumer.describe(self, group)
        reason = "not found" if group is None else "is not a consumer group"
        return consumer_group_describe.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Those in one of the states and of one of the types, in any case of letters; none named: all."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        listed = (self.groups[group_id].listed() for group_id in sorted(self.groups))
        return [
            group
            for group in listed
            if (not wanted_states or group.group_state.lower() in wanted_states)
            and (not wanted_types or group.group_type.lower() in wanted_types)
        ]

    def delete_group(self, now: Now, group_id: str) -> Decision:
        group = self.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is None or error:
            return Decision(error)
        records = [tombstone(place) for place in self.offsets.places_of_group(group_id)]
        return Decision(ErrorCode.NONE, records + group.tombstones())

    # --- replay -----------------------------------------------------------------------------------------

    def replay(self, record: Record, writer: Writer | None = None) -> None:
        key: Any
        value: Any
        key, value = record
        kind = type(key)
        if kind is OffsetCommitKey or kind is LegacyOffsetCommitKey:
            self.offsets.replay(
                key.group, key.topic, key.partition, value, None if writer is None else writer.producer_id
            )
            if key.group not in self.groups and value is not None:
                self.groups[key.group] = ClassicGroup(key.group)  # a simple group
        elif kind is GroupMetadataKey:
            self._replay_classic(key.group, value)
        elif kind in consumer.CONSUMER_GROUP_KEYS:
            consumer.replay(self, record)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
            return
        if isinstance(group, ClassicGroup):
            group.recorded = value
        else:
            group = self.groups[group_id] = ClassicGroup(group_id)
            group.recorded = value
            group.restore()  # of a downgraded group: requests may come before its ADOPT timer rings

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        self.offsets.replay_end(producer_id, is_committed)

    def loaded(self, now: Now) -> Decision:
        """All records were replayed: from now on members are expected to show that they are alive."""
        decision = Decision()
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                rebalance.take_charge(self, now, group, decision)
            elif isinstance(group, ConsumerGroup):
                group.loaded()
                consumer.start_timers(self, now, group)
        self.timers.set(EXPIRY, now.after_ms(self.settings.offsets_retention_check_interval_ms))
        return decision

    def state(self) -> Any:
        groups = {
            group_id: state for group_id, group in self.groups.items() if (state := group.state()) is not None
        }
        return groups, self.offsets.state()

    def check(self) -> None:
        """What holds between two decisions, once the shard is loaded; every test and the simulator ask."""
        check_groups(self)

    # --- time -------------------------------------------------------------------------------------------

    def deadline(self) -> Instant | None:
        return self.timers.next()

    def wake(self, now: Now) -> list[Decision]:
        """What follows from the timers that are due, up to the first that writes records: the others are
        looked at once those are replayed, in the next call, for which `deadline` asks at once.
        """
        decisions: list[Decision] = []
        while (key := self.timers.pop_due(now.mono)) is not None:
            if key == EXPIRY:
                self.timers.set(EXPIRY, now.after_ms(self.settings.offsets_retention_check_interval_ms))
                decisions += expiry.expire(self, now)
            else:
                decision = self._ring(now, *key)
                if decision.records or decision.answers:
                    decisions.append(decision)
            if decisions and decisions[-1].records:
                break
        return decisions

    def _ring(self, now: Now, kind: str, group_id: str, member_id: str) -> Decision:
        decision = Decision()
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and kind in consumer.TIMERS:
            return consumer.time_over(self, now, group, member_id)
        if not isinstance(group, ClassicGroup):
            return decision  # it went meanwhile
        if kind == rebalance.SESSION:
            departure.session_over(self, now, group, member_id, decision)
        elif kind == rebalance.JOIN:
            rebalance.join_time_over(self, now, group, decision)
        elif kind == rebalance.SYNC:
            rebalance.sync_time_over(self, now, group, decision)
        elif kind == rebalance.ADOPT:
            rebalance.adopt(self, now, group, decision)
        return decision

    def abandon(self) -> list[Ticket]:
        return [
            ticket
            for group in self.groups.values()
            if isinstance(group, ClassicGroup)
            for member in group.members.values()
            for ticket in (member.join_ticket, member.sync_ticket)
            if ticket is not None
        ]
