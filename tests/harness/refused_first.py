"""Machines of coordinators that make every decision twice: first as if nothing could be written.

A decision with records must then leave no trace in the machine's memory; it is made again, and counts. So
each test and each random history that uses such a machine also tests `decide_or_undo`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headrace.machines.coordination import CoordinatorMachine, Decision
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.groups import Groups
from headrace.machines.groups.undo import DEMANDS, SESSIONS
from headrace.machines.sinks.sinks import Sinks
from headrace.machines.transactions.transactions import Transactions

FreshId = Callable[[], int]


def refused_first(machine: CoordinatorMachine, key: str, decide: Callable[[], Decision]) -> Decision:
    state, memory = machine.state(), memory_of(machine)
    decision = machine.decide_or_undo(key, decide)
    if not decision.records:
        return decision
    assert machine.state() == state
    after = memory_of(machine)
    assert after.keys() == memory.keys()
    for name, before in memory.items():
        is_timer = name[0] == "timer"
        may_be_later = is_timer and (isinstance(machine, Sinks) or name[1] in (*SESSIONS, *DEMANDS))
        is_longer = may_be_later and after[name] > before
        assert is_longer or after[name] == before, f"{name} was {before} and is {after[name]}"
    machine.check()
    earliest = min((at for name, at in after.items() if name[0] in ("timer", "next")), default=None)
    assert machine.deadline() == earliest
    return decide()


def memory_of(machine: Any) -> dict[tuple[Any, ...], Any]:
    """All that a machine knows besides its state, flat and copied."""
    if isinstance(machine, Groups):
        found: dict[tuple[Any, ...], Any] = {
            ("timer", *key): at for key, at in machine.timers._deadlines.items()
        }
        for group in machine.groups.values():
            if isinstance(group, ClassicGroup):
                found |= _slots_of(group, group.group_id)
                for member in group.members.values():
                    found |= _slots_of(member, group.group_id, member.member_id)
            elif isinstance(group, ConsumerGroup):
                versions = group.topics_version, group.patterns_version, group.patterns_at
                found[group.group_id, "versions"] = versions
        return found
    found = {("timer", key): at for key, at in machine._timeouts._due.items()}
    found |= {("writing", key): id(order) for key, order in machine._writing.items()}
    if isinstance(machine, Sinks):
        return found | {("timer", "passing", key): at for key, at in machine._passing._due.items()}
    found["next",] = machine._next_expiration
    return found | {("bumped", key): epoch for key, epoch in machine._bumped_from.items()}


def _slots_of(value: Any, *names: str) -> dict[tuple[Any, ...], Any]:
    found: dict[tuple[Any, ...], Any] = {}
    for name in type(value).__slots__:
        slot = getattr(value, name)
        if isinstance(slot, dict):
            slot = list(slot) if name == "members" else list(slot.items())
        found[*names, name] = set(slot) if isinstance(slot, set) else slot
    return found


class SameIds:
    """Producer ids of which those of the refused decision are used again by the one that counts."""

    def __init__(self, fresh_id: FreshId, decide: Callable[[FreshId], Decision]) -> None:
        self._fresh_id = fresh_id
        self._decide = decide
        self._ids: list[int] = []

    def __call__(self) -> Decision:
        given = iter(list(self._ids))

        def fresh_id() -> int:
            known = next(given, None)
            if known is None:
                known = self._fresh_id()
                self._ids.append(known)
            return known

        return self._decide(fresh_id)


class RefusedGroups(Groups):
    def _twice(self, group_id: str, decide: Callable[[], Decision]) -> Decision:
        assert isinstance(self.rng, random.Random)
        dice = self.rng.getstate()

        def with_same_dice() -> Decision:
            self.rng.setstate(dice)  # type: ignore[attr-defined]  # a Random, see above
            return decide()

        return refused_first(self, group_id, with_same_dice)

    def join(self, now: Any, request: Any, *rest: Any) -> Decision:
        join = super().join
        return self._twice(request.group_id, lambda: join(now, request, *rest))

    def sync(self, now: Any, request: Any, *rest: Any) -> Decision:
        sync = super().sync
        return self._twice(request.group_id, lambda: sync(now, request, *rest))

    def leave(self, now: Any, group_id: str, *rest: Any) -> Decision:
        leave = super().leave
        return self._twice(group_id, lambda: leave(now, group_id, *rest))

    def consumer_heartbeat(self, now: Any, request: Any, *rest: Any) -> Decision:
        heartbeat = super().consumer_heartbeat
        return self._twice(request.group_id, lambda: heartbeat(now, request, *rest))


class RefusedTransactions(Transactions):
    def init_producer_id(self, now: Any, request: Any, fresh_id: FreshId) -> Decision:
        init = super().init_producer_id
        decide = SameIds(fresh_id, lambda fresh: init(now, request, fresh))
        return refused_first(self, request.transactional_id, decide)

    def add_partitions(self, now: Any, transactional_id: str, *rest: Any, **options: Any) -> Decision:
        add = super().add_partitions
        return refused_first(self, transactional_id, lambda: add(now, transactional_id, *rest, **options))

    def add_offsets(self, now: Any, transactional_id: str, *rest: Any) -> Decision:
        add = super().add_offsets
        return refused_first(self, transactional_id, lambda: add(now, transactional_id, *rest))

    def end(self, now: Any, request: Any, fresh_id: FreshId) -> Decision:
        end = super().end
        decide = SameIds(fresh_id, lambda fresh: end(now, request, fresh))
        return refused_first(self, request.transactional_id, decide)

    def markers_written(self, now: Any, *orders: Any) -> Decision:
        written = super().markers_written
        return refused_first(self, orders[0].transactional_id, lambda: written(now, *orders))


class RefusedSinks(Sinks):
    def join(self, now: Any, request: Any, fresh_id: FreshId) -> Decision:
        join = super().join
        return refused_first(self, request.app_id, SameIds(fresh_id, lambda fresh: join(now, request, fresh)))

    def commit(self, now: Any, app_id: str, *rest: Any) -> Decision:
        commit = super().commit
        return refused_first(self, app_id, lambda: commit(now, app_id, *rest))

    def abort(self, now: Any, app_id: str, *rest: Any) -> Decision:
        abort = super().abort
        return refused_first(self, app_id, lambda: abort(now, app_id, *rest))

    def reset(self, now: Any, app_id: str) -> Decision:
        reset = super().reset
        return refused_first(self, app_id, lambda: reset(now, app_id))

    def markers_written(self, now: Any, *orders: Any) -> Decision:
        written = super().markers_written
        return refused_first(self, orders[0].transactional_id, lambda: written(now, *orders))
