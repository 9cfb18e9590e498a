"""State of a group of the consumer protocol (KIP-848): its records, and indexes over them.

Three epochs describe the progress of the group. The *group epoch* rises with every change of members,
subscriptions or topics; the *assignment epoch* is the group epoch for which targets were computed; each
*member's epoch* is the assignment epoch it has reached. So the group's state is not a field:

    Empty                 no members
    Assigning             the assignment is older than the group
    Reconciling           some member has not reached the assignment
    Stable                all have

Only `replay` changes this state. One thing is only in memory: the version of the cluster's topics that the
group has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple

from headrace.base.limits import MEMBER_OVERHEAD_BYTES
from headrace.base.time import Instant
from headrace.machines.groups.assignors import Target
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.member import Member, MemberState, Partitions
from headrace.machines.groups.group import Committer, ListedGroup, PartitionCheck
from headrace.protocol.coordinator_records import Record, groups
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Data

PROTOCOL_TYPE = "consumer"


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int  # of the cluster's topics when it was resolved
    resolved_ms: int


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1  # a member at 0 would be one that joins; nobody has been assigned anything for 1
        self.metadata_hash = 0  # of the subscribed topics, when the epoch was last raised
        self.assignment_epoch = 1
        self.assignment_ms = 0  # when the targets were computed, by the wall clock; 0: unknown
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Target] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False  # a record of Kafka 4.0 or before is to be taken out of the log

        # What follows from the members, kept so that a heartbeat need not ask all of them.
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.owners: dict[tuple[bytes, int], str] = {}  # who holds a partition, until it has given it up
        self.topic_counts: Counter[str] = Counter()  # members that subscribed by name
        self.regex_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_count = 0

        # In memory alone: the version of the cluster's topics for which `metadata_hash` is known to hold;
        # that for which all patterns were resolved, and when.
        self.topics_version = -1
        self.patterns_version = -1
        self.patterns_at = Instant(-inf)

    # --- what others ask ------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts or any(topic in regex.topics for regex in self.regexes.values())

    def is_waiting_for_release(self, member: Member) -> bool:
        """Whether another member still holds something of this one's target."""
        for topic, numbers in self.targets.get(member.member_id, {}).items():
            assigned = member.assigned.get(topic, {})
            if any(number not in assigned and (topic, number) in self.owners for number in numbers):
                return True
        return False

    def check_commit(self, committer: Committer, *, is_transactional: bool) -> ErrorCode | PartitionCheck:
        _, member_id, instance_id, epoch, knows_epochs = committer
        if epoch < 0 and not self.members:
            return ErrorCode.NONE  # an admin's commit
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE  # a producer that is not a member of any group
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        stale = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        if not is_transactional and member.classic is None and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return ErrorCode.NONE
        if epoch > member.epoch:
            return stale

        def check(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
            """With an older epoch: only what it has held since then."""
            since = member.assigned.get(topic_id, {}).get(partition)
            if since is None:
                since = member.revoking.get(topic_id, {}).get(partition)
            return stale if since is None or epoch < since else ErrorCode.NONE

        return check

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE  # each topic is looked at: see `is_subscribed_to`

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def expires_offsets(self) -> bool:
        return True

    def empty_since_ms(self) -> int | None:
        return None

    def tombstones(self) -> list[Record]:
        return records.group_gone(self.group_id, self.members, self.regexes)

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, PROTOCOL_TYPE, self.state_name, "Consumer")

    def members_bytes(self) -> int:
        total = MEMBER_OVERHEAD_BYTES * len(self.members)
        for member in self.members.values():
            total += len(member.regex) + sum(map(len, member.topics))
            if member.classic is not None:
                total += sum(len(protocol.metadata) for protocol in member.classic.supported_protocols)
        return total

    def saved(self) -> Callable[[], ConsumerGroup]:
        kept = self.topics_version, self.patterns_version, self.patterns_at

        def restored() -> ConsumerGroup:
            self.topics_version, self.patterns_version, self.patterns_at = kept
            return self

        return restored

    def state(self) -> Any:
        return (
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assignment_ms,
            dict(self.members),
            dict(self.targets),
            dict(self.regexes),
            self.has_partition_metadata,
        )

    # --- replay ---------------------------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        _REPLAYS[type(record.key)](self, record.key, record.value)

    def _replay_epoch(self, key: Any, value: groups.ConsumerGroupMetadataValue | None) -> None:
        assert value is not None, "whoever holds the groups lets go of this one"
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def _replay_partition_metadata(self, key: Any, value: Data | None) -> None:
        self.has_partition_metadata = value is not None

    def _replay_member(
        self,
        key: groups.ConsumerGroupMemberMetadataKey,
        value: groups.ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            self._put(old, (old or Member(key.member_id)).with_metadata(value))
        elif old is not None:
            self._put(old, None)
            self.targets.pop(key.member_id, None)

    def _replay_target_epoch(
        self, key: Any, value: groups.ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = 1 if value is None else value.assignment_epoch
        self.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(
        self,
        key: groups.ConsumerGroupTargetAssignmentMemberKey,
        value: groups.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = {
                topic.topic_id: tuple(topic.partitions) for topic in value.topic_partitions
            }

    def _replay_assignment(
        self,
        key: groups.ConsumerGroupCurrentMemberAssignmentKey,
        value: groups.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            self._put(old, (old or Member(key.member_id)).with_assignment(value))
        elif old is not None:
            self._put(old, old.at_epoch(-1, MemberState.STABLE, {}, {}))

    def _replay_regex(
        self,
        key: groups.ConsumerGroupRegularExpressionKey,
        value: groups.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )

    def _put(self, old: Member | None, new: Member | None) -> None:
        """Exchanges a member, and all that follows from it."""
        if old is not None:
            self._count(old, -1)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
                del self.static_members[old.instance_id]
            for held in held_by(old):
                if self.owners.get(held) == old.member_id:
                    del self.owners[held]
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self._count(new, 1)
            if new.instance_id is not None:
                self.static_members[new.instance_id] = new.member_id
            for held in held_by(new):
                self.owners[held] = new.member_id
            self.members[new.member_id] = new

    def loaded(self) -> None:
        """Whose partitions and instance ids these are, by what members hold in the end. In a log that was
        compacted in parts a member may seem to hold what another has got since, and let go of it later.
        """
        self.owners = {held: member.member_id for member in self.members.values() for held in held_by(member)}
        self.static_members = {
            member.instance_id: member.member_id
            for member in self.members.values()
            if member.instance_id is not None
        }

    def _count(self, member: Member, step: int) -> None:
        for topic in member.topics:
            _add(self.topic_counts, topic, step)
        if member.regex:
            _add(self.regex_counts, member.regex, step)
        if member.assignor is not None:
            _add(self.assignor_counts, member.assignor, step)
        if member.classic is not None:
            self.classic_count += step


def _add(counts: Counter[str], name: str, step: int) -> None:
    counts[name] += step
    if not counts[name]:
        del counts[name]


def held_by(member: Member) -> Iterable[tuple[bytes, int]]:
    def places(partitions: Partitions) -> list[tuple[bytes, int]]:
        return [(topic, number) for topic, epochs in partitions.items() for number in epochs]

    return places(member.assigned) + places(member.revoking)


_REPLAYS: dict[type[Data], Callable[[ConsumerGroup, Any, Any], None]] = {
    groups.ConsumerGroupMetadataKey: ConsumerGroup._replay_epoch,
    groups.ConsumerGroupPartitionMetadataKey: ConsumerGroup._replay_partition_metadata,
    groups.ConsumerGroupMemberMetadataKey: ConsumerGroup._replay_member,
    groups.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._replay_target_epoch,
    groups.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._replay_target,
    groups.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._replay_assignment,
    groups.ConsumerGroupRegularExpressionKey: ConsumerGroup._replay_regex,
}
CONSUMER_GROUP_KEYS = frozenset(_REPLAYS)
