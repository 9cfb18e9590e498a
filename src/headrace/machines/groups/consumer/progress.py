"""Effects of one member's request on its group: a new epoch, new targets, and the member's next step.

It is the same for members of both protocols. Nothing here changes the group: the result is a list of records,
and intermediate values are passed from one step to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.time import Now
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.group import ConsumerGroup, ResolvedRegex
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.patterns import MaySee, current_patterns
from headrace.machines.groups.consumer.reconciliation import Owned, reconcile
from headrace.machines.groups.consumer.subscriptions import metadata_hash, topic_ids, topics_of
from headrace.machines.groups.consumer.targets import assign, may_assign, target_of
from headrace.machines.groups.consumer.timing import await_revocation
from headrace.protocol.coordinator_records import Record

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


class Change(NamedTuple):
    before: Member  # as the group knows it, or a fresh one
    after: Member  # with what it says now
    owned: Owned | None  # the partitions it says it owns; None: it says nothing
    may_see: MaySee | None = None  # which topics patterns find for it; None: patterns stay as they are


def advance(machine: Groups, now: Now, group: ConsumerGroup, change: Change, written: list[Record]) -> Member:
    """The member after its next step."""
    before, member, owned, may_see = change
    if member != before:
        written.append(records.member_metadata(group.group_id, member))
    former = group.members.get(before.member_id)
    if former is None and before.instance_id is not None:
        former = group.static_member(before.instance_id)

    regexes = current_patterns(machine, now, group, former, member, may_see, written)
    has_changed = member.topics != before.topics or member.regex != before.regex
    epoch = _next_epoch(machine, group, former, member, regexes, has_changed=has_changed, written=written)
    if epoch > group.assignment_epoch and may_assign(machine, now, group):
        target_epoch = epoch
        target = assign(machine, now, group, epoch, member, regexes, written)
    else:
        target_epoch = group.assignment_epoch
        target = target_of(group, member)

    if not has_changed and member.is_reconciled_to(target_epoch):
        return member
    reconciled = reconcile(
        member,
        target_epoch,
        target,
        subscribed=topic_ids(topics_of(member, regexes), machine.topics),
        has_subscription_changed=has_changed,
        owned=owned,
        owners=group.owners,
    )
    if reconciled != member:
        written.append(records.current_assignment(group.group_id, reconciled))
        await_revocation(machine, now, group.group_id, reconciled)
    return reconciled


def _next_epoch(
    machine: Groups,
    group: ConsumerGroup,
    former: Member | None,
    member: Member,
    regexes: Mapping[str, ResolvedRegex],
    *,
    has_changed: bool,
    written: list[Record],
) -> int:
    version = machine.topics.version
    has_changed = has_changed or regexes != group.regexes
    if not has_changed and group.topics_version == version:
        return group.epoch
    names = set(group.topic_counts)
    if former is not None:
        names.difference_update(name for name in former.topics if group.topic_counts[name] == 1)
    names.update(member.topics, *(regex.topics for regex in regexes.values()))
    new_hash = metadata_hash(names, machine.topics)
    if not has_changed and new_hash == group.metadata_hash:
        # Only now: what is still to be written may yet be refused.
        if not regexes or group.patterns_version == version:
            group.topics_version = version
        return group.epoch
    if group.has_partition_metadata:
        written.append(records.partition_metadata_gone(group.group_id))
    written.append(records.group_epoch(group.group_id, group.epoch + 1, new_hash))
    return group.epoch + 1
