"""What happens when a timer of a consumer group rings, and which timers begin when a shard is loaded."""

from __future__ import annotations

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.consumer.departure import remove_members
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.timing import (
    CLASSIC_JOIN,
    CLASSIC_SYNC,
    REBALANCE,
    SESSION,
    await_revocation,
    await_session,
)
from headrace.machines.groups.shard import Shard

TIMERS = frozenset({SESSION, REBALANCE, CLASSIC_JOIN, CLASSIC_SYNC})


def time_over(shard: Shard, now: Now, group: ConsumerGroup, member_id: str) -> Decision:
    """Whoever did not do what it had to do in its time is removed."""
    member = group.members.get(member_id)
    return Decision() if member is None else remove_members(shard, now, group, [member])


def start_timers(shard: Shard, now: Now, group: ConsumerGroup) -> None:
    """A new coordinator gives everybody its whole time. For a member of the classic protocol this is the
    session that it asked for: Kafka gives it the group's, which may be too short for it.
    """
    for member in group.members.values():
        await_session(shard, now, group.group_id, member)
        await_revocation(shard, now, group.group_id, member)
