"""Removal of members from a consumer group: they leave, time out, or do not give up partitions in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.migration import downgrade, may_downgrade
from headrace.machines.groups.consumer.subscriptions import metadata_hash
from headrace.machines.groups.consumer.timing import await_nothing

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


def remove_members(machine: Groups, now: Now, group: ConsumerGroup, leaving: Sequence[Member]) -> Decision:
    """The records of their departure. The rest gets new targets with the next heartbeat."""
    decision = Decision()
    if not leaving:
        return decision
    if may_downgrade(machine, group, leaving):
        downgrade(machine, now, group, leaving, decision)
        return decision
    for member in leaving:
        decision.records += records.member_gone(group.group_id, member.member_id)
        await_nothing(machine, group.group_id, member.member_id)

    topic_counts, regex_counts = Counter(group.topic_counts), Counter(group.regex_counts)
    for member in leaving:
        topic_counts.subtract(member.topics)
        regex_counts.subtract([member.regex])
    names = {name for name, count in topic_counts.items() if count > 0}
    for regex, resolved in group.regexes.items():
        if regex_counts[regex] > 0:
            names.update(resolved.topics)
        else:
            decision.records.append(records.regex_gone(group.group_id, regex))
    decision.records.append(
        records.group_epoch(group.group_id, group.epoch + 1, metadata_hash(names, machine.topics))
    )
    return decision


def time_over(machine: Groups, now: Now, group: ConsumerGroup, member_id: str) -> Decision:
    """Removes a member that did not do in time what it had to do."""
    member = group.members.get(member_id)
    return Decision() if member is None else remove_members(machine, now, group, [member])
