"""The group coordinator's machine: all groups of one partition of `__consumer_offsets`.

It follows the contract of every coordinator (see `machines.coordination`): it decides requests, and their
records are appended and replayed. A join or sync is answered through its ticket as soon as its rebalance is
over, possibly in the same decision; then `reply` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any

from headrace.base.limits import (
    MEMBER_BYTES_MAX,
    MEMBER_OVERHEAD_BYTES,
    MEMBER_STAYS_BYTES_MAX,
    MEMBERS_BYTES_MAX,
)
from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.coordination import WRITE_AGAIN_MS, Caller, Decision, Ticket, Topics, Writer
from headrace.machines.groups import commits, consumer, expiry, undo
from headrace.machines.groups.classic import departure, rebalance, sync
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.classic.requests import Join, Joined, Leaving, Left, Sync, Synced
from headrace.machines.groups.commits import FetchedTopic, TopicPartitions
from headrace.machines.groups.consumer import ConsumerGroup, classic_members
from headrace.machines.groups.consumer.heartbeat import Heartbeat, HeartbeatResult
from headrace.machines.groups.describe import (
    DescribedClassicGroup,
    DescribedConsumerGroup,
    describe_classic,
    describe_consumer,
    list_groups,
)
from headrace.machines.groups.group import Committer, Group, ListedGroup
from headrace.machines.groups.invariants import check_groups
from headrace.machines.groups.offsets import NO_EXPIRY, Offsets, tombstone
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.coordinator_records import Change, Record
from headrace.protocol.coordinator_records.groups import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from headrace.protocol.coordinator_records.offset_commits import CommittedTopic, TopicColumns
from headrace.protocol.errors import ErrorCode

EXPIRY = ("offsets expiry", "", "")
COUNTED_EVERY_MS = 1_000


# What the timer is for, the group, the member; what does not apply is empty.
Key = tuple[str, str, str]


class Timers:
    """A deadline per key, in one heap.

    Setting a timer to a later time, which every heartbeat does, only stores the new deadline; the heap is
    updated when the old deadline comes. So a key has one valid entry in the heap, however often it is set.
    """

    __slots__ = ("_before", "_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        # deadlines before `begin`, of keys that were touched since; None: it was not called
        self._before: dict[Key, Instant | None] | None = None
        self._deadlines: dict[Key, Instant] = {}
        self._queued: dict[Key, Instant] = {}  # the heap's entry that counts; never later than the deadline
        self._heap: list[tuple[Instant, Key]] = []

    def set(self, key: Key, at: Instant) -> None:
        """Replaces the deadline that the key had."""
        if self._before is not None:
            self._before.setdefault(key, self._deadlines.get(key))
        self._deadlines[key] = at
        queued = self._queued.get(key)
        if queued is None or at < queued:
            self._queued[key] = at
            heappush(self._heap, (at, key))

    def cancel(self, key: Key) -> None:
        at = self._deadlines.pop(key, None)
        if self._before is not None:
            self._before.setdefault(key, at)

    def begin(self) -> None:
        """From now on changes can be undone; nothing is popped meanwhile."""
        self._before = {}

    def end(self) -> dict[Key, Instant | None]:
        """The deadlines before `begin` of all keys that were set or cancelled since."""
        before, self._before = self._before, None
        assert before is not None
        return before

    def get(self, key: Key) -> Instant | None:
        return self._deadlines.get(key)

    def next(self) -> Instant | None:
        """The earliest deadline."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self._deadlines.get(key) == at:
                return at
            self._drop_stale()
        return None

    def pop_due(self, mono: Instant) -> Key | None:
        """Takes the earliest timer that is due, if there is one."""
        at = self.next()
        if at is None or at > mono:
            return None
        _, key = heappop(self._heap)
        del self._deadlines[key]
        if self._queued.get(key) == at:
            del self._queued[key]
        return key

    def _drop_stale(self) -> None:
        """Moves the heap's first entry to the deadline its key has by now, or away."""
        at, key = heappop(self._heap)
        if self._queued.get(key) != at:
            return  # an earlier deadline was queued meanwhile
        deadline = self._deadlines.get(key)
        if deadline is None:
            del self._queued[key]
        else:
            self._queued[key] = deadline
            heappush(self._heap, (deadline, key))


class MemberMemory:
    """Limits on the memory of group members: subscription and assignment of each one, and of all together.

    To count every member at every join would take long. So the sizes of requests are added up. When the sum
    is over the limit, the members are counted, at most once a second.
    """

    __slots__ = ("_count", "_count_again_at", "bytes")

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count  # the bytes of all members
        self._count_again_at = 0.0
        self.bytes = 0  # never less than there are, since the last count

    def refusal(self, now: Now, sizes: Sequence[int], is_known: Callable[[], bool]) -> ErrorCode | None:
        """None: what a member brings along is taken, and counts. A member that is known already may stay."""
        if sizes and max(sizes) > MEMBER_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        weight = sum(sizes) + MEMBER_OVERHEAD_BYTES * len(sizes)
        if self.bytes + weight > MEMBERS_BYTES_MAX and now.mono >= self._count_again_at:
            self._count_again_at = now.after_ms(COUNTED_EVERY_MS)
            self.bytes = self._count()
        if self.bytes + weight > MEMBERS_BYTES_MAX and not (
            sum(sizes) <= MEMBER_STAYS_BYTES_MAX and is_known()
        ):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        self.bytes += weight
        return None


class Groups:
    def __init__(
        self, settings: GroupSettings, topics: Topics, rng: Randomness, memory: MemberMemory | None = None
    ) -> None:
        """`memory` is shared by the machines of a broker; None: this one has its own."""
        self.settings = settings
        self.topics = topics
        self.rng = rng
        self.timers = Timers()
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._memory = memory or MemberMemory(self.members_bytes)

    def fresh_member_id(self, prefix: str) -> str:
        """The prefix and a random (version 4) UUID in its usual text form."""
        raw = bytearray(self.rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _refusal(self, now: Now, group_id: str, member_id: str, sizes: Sequence[int]) -> ErrorCode | None:
        """Why what a member brings along is not taken; None: it is, and counts. `sizes` are bytes, for each
        member that it speaks of.
        """
        return self._memory.refusal(now, sizes, lambda: self._has_member(group_id, member_id))

    def _has_member(self, group_id: str, member_id: str) -> bool:
        group = self.groups.get(group_id)
        return isinstance(group, ClassicGroup | ConsumerGroup) and member_id in group.members

    # --- members of classic groups ----------------------------------------------------------------------

    def join(self, now: Now, request: Join, caller: Caller, ticket: Ticket) -> Decision:
        """The reply, and the answer through the ticket, is `Joined`."""
        settings, group_id = self.settings, request.group_id
        if not group_id:
            return Decision(Joined(request.member_id, ErrorCode.INVALID_GROUP_ID))
        if (
            not settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            return Decision(Joined(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
        size = sum(len(name) + len(metadata) for name, metadata in request.protocols)
        refusal = self._refusal(now, group_id, request.member_id, [size])
        if refusal is not None:
            return Decision(Joined(request.member_id, refusal))
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return rebalance.join(self, now, group, request, caller, ticket)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return classic_members.join(self, now, group, request, caller)
        return self._found(now, request, caller, ticket)

    def _found(self, now: Now, request: Join, caller: Caller, ticket: Ticket) -> Decision:
        """The group comes into being with its first member, in place of an empty one of the new protocol."""
        if request.member_id:
            return Decision(Joined(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        group = ClassicGroup(request.group_id, now.wall_ms)
        former = self.groups.get(request.group_id)
        birth = [] if former is None else former.tombstones()
        birth.append(group.birth_record())
        self.groups[request.group_id] = group
        decision = rebalance.join(self, now, group, request, caller, ticket)
        decision.records[:0] = birth
        return decision

    def sync(self, now: Now, request: Sync, ticket: Ticket) -> Decision:
        """The reply, and the answer through the ticket, is `Synced`."""
        if not request.group_id:
            return Decision(Synced(ErrorCode.INVALID_GROUP_ID))
        sizes = [len(assignment) for assignment in request.assignments.values()]
        refusal = self._refusal(now, request.group_id, request.member_id, sizes)
        if refusal is not None:
            return Decision(Synced(refusal))
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return sync.sync(self, now, group, request, ticket)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(self, now, group, request)
        return Decision(Synced(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(
        self, now: Now, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> Decision:
        """The reply is an error code."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return Decision(sync.heartbeat(self, now, group, generation, member_id, instance_id))
        if isinstance(group, ConsumerGroup):
            return Decision(classic_members.heartbeat(self, now, group, generation, member_id, instance_id))
        return Decision(ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID)

    def leave(self, now: Now, group_id: str, leaving: Sequence[Leaving]) -> Decision:
        """The reply is `Left`."""
        if not group_id:
            return Decision(Left(ErrorCode.INVALID_GROUP_ID))
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return departure.leave(self, now, group, leaving)
        if isinstance(group, ConsumerGroup):
            return classic_members.leave(self, now, group, leaving)
        return Decision(Left(members=(ErrorCode.UNKNOWN_MEMBER_ID,) * len(leaving)))

    # --- members of groups of the new protocol ----------------------------------------------------------

    def consumer_heartbeat(
        self,
        now: Now,
        request: Heartbeat,
        caller: Caller,
        may_see: consumer.MaySee = lambda topic: True,
    ) -> Decision:
        """The reply is `HeartbeatResult`. `may_see` says which topics the member's patterns may find."""
        if request.topics is not None or request.regex is not None:
            size = len(request.regex or "") + sum(map(len, request.topics or ()))
            refusal = self._refusal(now, request.group_id, request.member_id, [size])
            if refusal is not None:
                return Decision(HeartbeatResult(error=refusal))
        return consumer.heartbeat(self, now, request, caller, may_see)

    # --- offsets ----------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        now: Now,
        committer: Committer,
        topics: Sequence[TopicColumns],
        retention_ms: int = NO_EXPIRY,
    ) -> Decision:
        return commits.commit(self, now, committer, topics, retention_ms)

    def commit_again(
        self, now: Now, committer: Committer, before: Record, offset: int, leader_epoch: int
    ) -> Record | None:
        return commits.commit_again(self, now, committer, before, offset, leader_epoch)

    def commit_transactional(
        self, now: Now, committer: Committer, writer: Writer, topics: Sequence[TopicColumns]
    ) -> Decision:
        return commits.commit_transactional(self, now, committer, writer, topics)

    def fetch_offsets(
        self,
        now: Now,
        group_id: str,
        topics: Sequence[TopicPartitions] | None,
        *,
        member_id: str | None = None,
        epoch: int = -1,
        require_stable: bool = False,
    ) -> list[FetchedTopic] | ErrorCode:
        """Without topics: all that the group has committed. Whoever asks as a member has an epoch."""
        return commits.fetch(self, group_id, member_id, epoch, topics, require_stable)

    def confirm(self, group_id: str) -> Decision:
        """Something to write, so that it shows whether this is still the group's coordinator."""
        return commits.confirm(group_id)

    def delete_offsets(self, now: Now, group_id: str, topics: Sequence[TopicPartitions]) -> Decision:
        return commits.delete(self, group_id, topics)

    def forget_topics(self, now: Now, names: Iterable[str]) -> list[Decision]:
        """Topics were deleted: their offsets mean nothing any more."""
        return expiry.forget_topics(self, names)

    def forget_gone_topics(self, now: Now) -> Generator[list[Decision], None, list[Decision]]:
        """The same in steps, for topics that were deleted before the log was replayed."""
        return expiry.forget_gone_topics(self)

    # --- admin ------------------------------------------------------------------------------------------

    def describe_classic(self, now: Now, group_id: str) -> DescribedClassicGroup | str:
        """A classic group, or the reason why there is none."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return describe_classic(group)
        return "not found" if group is None else "is not a classic group"

    def describe_consumer(self, now: Now, group_id: str) -> DescribedConsumerGroup | str:
        """A group of the consumer protocol, or the reason why there is none."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return describe_consumer(self, group)
        return "not found" if group is None else "is not a consumer group"

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Those in one of the states and of one of the types, in any case of letters; none named: all."""
        return list_groups(self, states, types)

    def members_bytes(self) -> int:
        """Memory that the members take: values of clients, such as subscriptions and assignments. It counts
        until a member's session is over, which may be long after its client is gone.
        """
        return sum(group.members_bytes() for group in self.groups.values())

    def delete_group(self, now: Now, group_id: str) -> Decision:
        group = self.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is None or error:
            return Decision(error)
        records = [tombstone(key) for key in self.offsets.keys_of_group(group_id)]
        return Decision(ErrorCode.NONE, records + group.tombstones())

    def decide_or_undo(self, key: str, decide: Callable[[], Decision]) -> Decision:
        return undo.decide_or_undo(self, key, decide)

    # --- replay -----------------------------------------------------------------------------------------

    def replay(self, change: Change, writer: Writer | None = None) -> None:
        if isinstance(change, CommittedTopic):
            self._replay_commits(change, writer)
            return
        key: Any
        value: Any
        key, value = change
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
            self._replay_consumer(change)

    def _replay_commits(self, change: CommittedTopic, writer: Writer | None) -> None:
        group_id = change.group
        self.offsets.replay_topic(change, None if writer is None else writer.producer_id)
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id)  # a simple group

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

    def _replay_consumer(self, record: Record) -> None:
        """A consumer group is created with its first record, and removed with its epoch's tombstone."""
        key: Any = record.key
        group = self.groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return  # compaction took what this tombstone is about
            # Compaction keeps the last record of each key: offsets may stand before the group they belong to,
            # and whoever held them until now was a group without a record of its own.
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        if record.value is None and type(key) is ConsumerGroupMetadataKey:
            del self.groups[key.group_id]
        else:
            group.replay(record)

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

    def wake(self, now: Now, *, can_write: bool = True) -> list[Decision]:
        """What follows from the timers that are due, up to the first that writes records: the others are
        looked at once those are replayed, in the next call, for which `deadline` asks at once. If nothing can
        be written, that timer is set again, and the others are looked at in the same call.
        """
        decisions: list[Decision] = []
        while (key := self.timers.pop_due(now.mono)) is not None:
            if key == EXPIRY:
                self.timers.set(EXPIRY, now.after_ms(self.settings.offsets_retention_check_interval_ms))
                if can_write:
                    decisions += expiry.expire(self, now)
            else:
                if can_write:
                    decision = self._ring(now, *key)
                else:
                    decision = self.decide_or_undo(key[1], partial(self._ring, now, *key))
                if decision.records and not can_write:
                    self.timers.set(key, now.after_ms(WRITE_AGAIN_MS))
                elif decision.records or decision.answers:
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
