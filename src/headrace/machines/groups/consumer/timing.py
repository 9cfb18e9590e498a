"""Timers of a consumer group: what they wait for, and how long. When one expires, `departure.py` removes
the member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member, MemberState

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

# Kinds of timers: a member is silent; it does not give its partitions up; a member of the classic protocol
# does not join again, or does not ask for its share.
SESSION, REBALANCE = "consumer session", "consumer rebalance"
CLASSIC_JOIN, CLASSIC_SYNC = "consumer classic join", "consumer classic sync"
TIMERS = frozenset({SESSION, REBALANCE, CLASSIC_JOIN, CLASSIC_SYNC})


def await_session(machine: Groups, now: Now, group_id: str, member: Member) -> None:
    if member.classic is None:
        timeout_ms = machine.settings.of_group(group_id).session_timeout_ms
    else:
        timeout_ms = member.classic.session_timeout_ms
    machine.timers.set((SESSION, group_id, member.member_id), now.after_ms(timeout_ms))


def await_revocation(machine: Groups, now: Now, group_id: str, member: Member) -> None:
    """From each new demand on; members of the classic protocol are asked to join again instead."""
    timer = (REBALANCE, group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
        machine.timers.set(timer, now.after_ms(member.rebalance_timeout_ms))
    else:
        machine.timers.cancel(timer)


def await_classic_join(machine: Groups, now: Now, group_id: str, member: Member) -> None:
    """From the first time it is told to; being told again gives no more time."""
    timer = (CLASSIC_JOIN, group_id, member.member_id)
    if machine.timers.get(timer) is None:
        machine.timers.set(timer, now.after_ms(member.rebalance_timeout_ms))


def await_classic_sync(machine: Groups, now: Now, group_id: str, member: Member) -> None:
    machine.timers.cancel((CLASSIC_JOIN, group_id, member.member_id))
    machine.timers.set((CLASSIC_SYNC, group_id, member.member_id), now.after_ms(member.rebalance_timeout_ms))


def await_nothing(machine: Groups, group_id: str, member_id: str) -> None:
    for kind in (SESSION, REBALANCE, CLASSIC_JOIN, CLASSIC_SYNC):
        machine.timers.cancel((kind, group_id, member_id))


def start_timers(machine: Groups, now: Now, group: ConsumerGroup) -> None:
    """A new coordinator gives everybody its whole time. For a member of the classic protocol this is the
    session that it asked for: Kafka gives it the group's, which may be too short for it.
    """
    for member in group.members.values():
        await_session(machine, now, group.group_id, member)
        await_revocation(machine, now, group.group_id, member)
