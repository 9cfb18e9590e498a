"""Members go: they leave, fall silent, or do not give up what they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.consumer import records
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.migration import downgrade, may_downgrade
from headrace.machines.groups.consumer.subscriptions import metadata_hash
from headrace.machines.groups.consumer.timing import await_nothing
from headrace.machines.groups.shard import Shard


def remove_members(shard: Shard, now: Now, group: ConsumerGroup, leaving: Sequence[Member]) -> Decision:
    """The records of their departure. The rest gets new targets with the next heartbeat."""
    decision = Decision()
    if not leaving:
        return decision
    if may_downgrade(shard, group, leaving):
        downgrade(shard, now, group, leaving, decision)
        return decision
    for member in leaving:
        decision.records += records.member_gone(group.group_id, member.member_id)
        await_nothing(shard, group.group_id, member.member_id)

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
        records.group_epoch(group.group_id, group.epoch + 1, metadata_hash(names, shard.topics))
    )
    return decision
