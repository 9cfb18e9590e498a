"""What is waited for in a consumer group, and for how long. What happens when a timer rings is in
`expiry.py`.
"""

from __future__ import annotations

from headrace.base.time import Now
from headrace.machines.groups.consumer.member import Member, MemberState
from headrace.machines.groups.shard import Shard

# Kinds of timers: a member is silent; it does not give its partitions up; a member of the classic protocol
# does not join again, or does not ask for its share.
SESSION, REBALANCE = "consumer session", "consumer rebalance"
CLASSIC_JOIN, CLASSIC_SYNC = "consumer classic join", "consumer classic sync"


def await_session(shard: Shard, now: Now, group_id: str, member: Member) -> None:
    if member.classic is None:
        timeout_ms = shard.settings.of_group(group_id).session_timeout_ms
    else:
        timeout_ms = member.classic.session_timeout_ms
    shard.timers.set((SESSION, group_id, member.member_id), now.after_ms(timeout_ms))


def await_revocation(shard: Shard, now: Now, group_id: str, member: Member) -> None:
    """From each new demand on; members of the classic protocol are asked to join again instead."""
    timer = (REBALANCE, group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
        shard.timers.set(timer, now.after_ms(member.rebalance_timeout_ms))
    else:
        shard.timers.cancel(timer)


def await_classic_join(shard: Shard, now: Now, group_id: str, member: Member) -> None:
    """From the first time it is told to; being told again gives no more time."""
    timer = (CLASSIC_JOIN, group_id, member.member_id)
    if shard.timers.get(timer) is None:
        shard.timers.set(timer, now.after_ms(member.rebalance_timeout_ms))


def await_classic_sync(shard: Shard, now: Now, group_id: str, member: Member) -> None:
    shard.timers.cancel((CLASSIC_JOIN, group_id, member.member_id))
    shard.timers.set((CLASSIC_SYNC, group_id, member.member_id), now.after_ms(member.rebalance_timeout_ms))


def await_nothing(shard: Shard, group_id: str, member_id: str) -> None:
    for kind in (SESSION, REBALANCE, CLASSIC_JOIN, CLASSIC_SYNC):
        shard.timers.cancel((kind, group_id, member_id))
