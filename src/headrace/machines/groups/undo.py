"""Decisions about a group that are undone if they have records, for the time when nothing can be written.

Of a decision that is undone, one thing stays: a session that it extended. Its member has shown that it is
alive, and would otherwise be removed as soon as records can be written again, although it had never stopped
asking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.machines.coordination import Decision
from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.consumer import timing

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

SESSIONS = (rebalance.SESSION, timing.SESSION)


def decide_or_undo(machine: Groups, group_id: str, decide: Callable[[], Decision]) -> Decision:
    """See `CoordinatorMachine.decide_or_undo`."""
    groups, timers = machine.groups, machine.timers
    group = groups.get(group_id)
    restored = None if group is None else group.memory()
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
        after = timers.get(key)
        if before is None:
            timers.cancel(key)
        elif key[0] not in SESSIONS or after is None or after < before:
            timers.set(key, before)
    return decision
