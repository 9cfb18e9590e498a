"""Target assignment of a consumer group: computed for all members, written where it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.groups.assignors import ASSIGNORS, Subscriber, Target
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.group import ConsumerGroup, ResolvedRegex
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.subscriptions import topic_ids, topics_of
from headrace.protocol.coordinator_records import Record

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


def may_assign(machine: Groups, now: Now, group: ConsumerGroup) -> bool:
    """Targets are not computed for every member of a hundred that start together, but for all that came
    since.
    """
    age_ms = now.wall_ms - group.assignment_ms
    # An assignment of the future: the wall clock was set back, and nothing shall wait for it to catch up.
    return age_ms < 0 or age_ms >= machine.settings.of_group(group.group_id).assignment_interval_ms


def target_of(group: ConsumerGroup, member: Member) -> Target:
    """A static member that came back takes over what was meant for it under its former id."""
    target = group.targets.get(member.member_id)
    if target is None and member.instance_id is not None:
        target = group.targets.get(group.static_members.get(member.instance_id, ""))
    return {} if target is None else target


def assign(
    machine: Groups,
    now: Now,
    group: ConsumerGroup,
    epoch: int,
    member: Member,
    regexes: Mapping[str, ResolvedRegex],
    written: list[Record],
) -> Target:
    """The new target of this member, the group being as it will be with the member as it is here."""
    members = dict(group.members)
    if member.instance_id is not None:
        members.pop(group.static_members.get(member.instance_id, ""), None)
    members[member.member_id] = member

    topics = machine.topics
    wishes: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
    subscribers: dict[str, Subscriber] = {}
    for member_id, each in sorted(members.items()):
        wish = wishes.get((each.topics, each.regex))
        if wish is None:
            wish = wishes[each.topics, each.regex] = topic_ids(topics_of(each, regexes), topics)
        subscribers[member_id] = Subscriber(wish, target_of(group, each), each.instance_id)
    counts = {
        topic_id: topics.partition_count(topics.name_of(topic_id) or "") or 0
        for topic_id in frozenset().union(*wishes.values())
    }

    targets = ASSIGNORS[_preferred_assignor(machine, group, member)](subscribers, counts)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            written.append(records.member_target(group.group_id, member_id, target))
    written.append(records.target_epoch(group.group_id, epoch, now.wall_ms))
    return targets[member.member_id]


def _preferred_assignor(machine: Groups, group: ConsumerGroup, member: Member) -> str:
    votes = group.assignor_counts.copy()
    former = group.members.get(member.member_id)
    if former is not None and former.assignor is not None:
        votes[former.assignor] -= 1
    if member.assignor is not None:
        votes[member.assignor] += 1
    return preferred(machine, votes)


def preferred(machine: Groups, votes: Mapping[str, int]) -> str:
    """The assignor that most members ask for; those that ask for none do not count."""
    offered = offered_assignors(machine)
    known = [name for name in offered if votes.get(name, 0) > 0]
    return max(known, key=votes.__getitem__) if known else offered[0]


def offered_assignors(machine: Groups) -> list[str]:
    """Those that are set and that we have, in the order of preference."""
    return [name for name in machine.settings.group_consumer_assignors if name in ASSIGNORS] or list(
        ASSIGNORS
    )
