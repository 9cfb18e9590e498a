"""What one member's request does to its group: new epoch, new targets, and the member's next step.

The same for members of both protocols. Nothing here changes the group; the records say what shall change, and
what is computed from them on the way is handed from one step to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.base.time import Now
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.group import ConsumerGroup, ResolvedRegex
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.reconciliation import Owned, reconcile
from headrace.machines.groups.consumer.subscriptions import metadata_hash, resolve, topic_ids, topics_of
from headrace.machines.groups.consumer.targets import assign, may_assign, target_of
from headrace.machines.groups.consumer.timing import await_revocation
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records import Record

# How long the topics of a pattern stay as they are while topics come and go: matching all names for every
# group at every new topic would be felt by a cluster that creates many. Kafka's figure.
REGEX_REFRESH_MS_MIN = 10_000


class Change(NamedTuple):
    before: Member  # as the group knows it, or a fresh one
    after: Member  # with what it says now
    owned: Owned | None  # the partitions it says it owns; None: it says nothing


def advance(shard: Shard, now: Now, group: ConsumerGroup, change: Change, written: list[Record]) -> Member:
    """The member after its next step."""
    before, member, owned = change
    if member != before:
        written.append(records.member_metadata(group.group_id, member))
    former = group.members.get(before.member_id)
    if former is None and before.instance_id is not None:
        former = group.static_member(before.instance_id)

    regexes = _resolved_regexes(shard, now, group, former, member, written)
    has_changed = member.topics != before.topics or member.regex != before.regex
    epoch = _next_epoch(shard, group, former, member, regexes, has_changed=has_changed, written=written)
    if epoch > group.assignment_epoch and may_assign(shard, now, group):
        target_epoch = epoch
        target = assign(shard, now, group, epoch, member, regexes, written)
    else:
        target_epoch = group.assignment_epoch
        target = target_of(group, member)

    if not has_changed and member.is_reconciled_to(target_epoch):
        return member
    reconciled = reconcile(
        member,
        target_epoch,
        target,
        subscribed=topic_ids(topics_of(member, regexes), shard.topics),
        has_subscription_changed=has_changed,
        owned=owned,
        owners=group.owners,
    )
    if reconciled != member:
        written.append(records.current_assignment(group.group_id, reconciled))
        await_revocation(shard, now, group.group_id, reconciled)
    return reconciled


def _resolved_regexes(
    shard: Shard,
    now: Now,
    group: ConsumerGroup,
    former: Member | None,
    member: Member,
    written: list[Record],
) -> Mapping[str, ResolvedRegex]:
    """The patterns that the group has with this member, and the topics behind them."""
    abandoned = former.regex if former is not None and former.regex != member.regex else ""
    if not member.regex and not group.regexes:
        return group.regexes
    regexes = dict(group.regexes)
    if abandoned and group.regex_counts[abandoned] == 1 and regexes.pop(abandoned, None) is not None:
        written.append(records.regex_gone(group.group_id, abandoned))
    wanted = {member.regex} - {""} - set(regexes)
    version = shard.topics.version
    is_due = group.regexes_version != version and now.mono >= group.next_regexes_at
    if is_due:
        wanted.update(regexes)
    for regex in sorted(wanted):
        topics = resolve(regex, shard.topics)
        known = regexes.get(regex)
        if known is None or known.topics != topics:
            regexes[regex] = ResolvedRegex(topics, version, now.wall_ms)
            written.append(records.resolved_regex(group.group_id, regex, topics, version, now.wall_ms))
    if is_due:
        group.regexes_version, group.next_regexes_at = version, now.after_ms(REGEX_REFRESH_MS_MIN)
    return regexes


def _next_epoch(
    shard: Shard,
    group: ConsumerGroup,
    former: Member | None,
    member: Member,
    regexes: Mapping[str, ResolvedRegex],
    *,
    has_changed: bool,
    written: list[Record],
) -> int:
    version = shard.topics.version
    if not has_changed and regexes == group.regexes and group.topics_version == version:
        return group.epoch
    if not regexes or group.regexes_version == version:
        group.topics_version = version
    names = set(group.topic_counts)
    if former is not None:
        names.difference_update(name for name in former.topics if group.topic_counts[name] == 1)
    names.update(member.topics, *(regex.topics for regex in regexes.values()))
    new_hash = metadata_hash(names, shard.topics)
    if not has_changed and regexes == group.regexes and new_hash == group.metadata_hash:
        return group.epoch
    if group.has_partition_metadata:
        written.append(records.partition_metadata_gone(group.group_id))
    written.append(records.group_epoch(group.group_id, group.epoch + 1, new_hash))
    return group.epoch + 1
