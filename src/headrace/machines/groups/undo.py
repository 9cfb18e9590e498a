"""Decisions about a group that are undone if they have records, for the time when nothing can be written.

One effect of an undone decision stays: its member gets more time. A member that has shown that it is alive
has its session extended. A member that has done what was asked (it gave partitions up, or joined again) need
not repeat it before that session ends. Otherwise both would be removed as soon as records can be written
again, although they had sent requests all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.base.time import Instant
from headrace.machines.coordination import Decision
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.consumer import timing

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups, Key, Timers

    Deadlines = Mapping[Key, Instant | None]  # before a decision, of the timers that it has set or cancelled

SESSIONS = (rebalance.SESSION, timing.SESSION)
DEMANDS = (timing.REBALANCE, timing.CLASSIC_JOIN)  # cancelled when a member has done what it was told to do


def decide_or_undo(machine: Groups, group_id: str, decide: Callable[[], Decision]) -> Decision:
    """See `CoordinatorMachine.decide_or_undo`."""
    groups, timers = machine.groups, machine.timers
    group = groups.get(group_id)
    restored = None if group is None else group.saved()
    timers.begin()
    try:
        decision = decide()
    finally:
        deadlines = timers.end()
    if not decision.records:
        return decision
    if restored is not None:
        groups[group_id] = restored()
    else:
        groups.pop(group_id, None)
    for key, before in deadlines.items():
        if before is None:
            timers.cancel(key)
        else:
            timers.set(key, _gained(timers, deadlines, key, before))
    return decision


def _gained(timers: Timers, deadlines: Deadlines, key: Key, before: Instant) -> Instant:
    """The deadline of a key after the decision is undone, where it was `before` the decision."""
    kind, group_id, member_id = key
    after = timers.get(key)
    if kind in SESSIONS:
        return before if after is None else max(before, after)
    if kind in DEMANDS and after is None:
        session = (timing.SESSION, group_id, member_id)
        former, until = deadlines.get(session), timers.get(session)
        if former is not None and until is not None and until > former:  # else it is the member that has gone
            return max(before, until)
    return before
