"""Invariants of every group between two decisions: counts, indexes, waiting requests, and timers.

Tests and the simulator check them after every step. If a count is wrong by one, the next rebalance expels a
healthy member; if a timer is missing, the group waits for a member or a rebalance for ever.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headrace.machines.groups.classic import rebalance
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.consumer import ConsumerGroup, timing
from headrace.machines.groups.consumer.group import held_by

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


def check_groups(machine: Groups) -> None:
    for group_id, group in machine.groups.items():
        assert group.group_id == group_id, f"{group.group_id} is kept as {group_id}"
        if isinstance(group, ClassicGroup):
            _check_counts(group)
            _check_waiting(group)
            _check_timers(machine, group)
        elif isinstance(group, ConsumerGroup):
            _check_consumer(machine, group)


def _check_counts(group: ClassicGroup) -> None:
    name, members = group.group_id, group.members
    joining = sum(member.join_ticket is not None for member in members.values())
    assert group.joining == joining, f"{name}: joining is {group.joining}, {joining} members wait"
    supporters = Counter(protocol for member in members.values() for protocol in member.protocol_names)
    assert +Counter(group.supporters) == supporters, f"{name}: {group.supporters} for {supporters}"
    static = {member.instance_id: member.member_id for member in members.values() if member.instance_id}
    assert group.static_members == static, f"{name}: {group.static_members} for {static}"
    assert (group.leader in members) == bool(members), f"{name}: {group.leader} leads {list(members)}"
    assert group.unsynced <= members.keys(), f"{name}: {group.unsynced} of {list(members)}"
    assert not group.pending & members.keys(), f"{name}: {group.pending & members.keys()} have joined"


def _check_waiting(group: ClassicGroup) -> None:
    name, status = group.group_id, group.status
    if status is not State.PREPARING_REBALANCE:
        assert not group.joining, f"{name}: {group.joining} wait for a generation in {status}"
    if status is not State.COMPLETING_REBALANCE:
        waiting = [each.member_id for each in group.members.values() if each.sync_ticket is not None]
        assert not waiting, f"{name}: {waiting} wait for an assignment in {status}"
    if status is State.EMPTY:
        assert not group.members, f"{name} is empty and has {list(group.members)}"
    elif status is not State.PREPARING_REBALANCE:
        assert group.members, f"{name} has no members in {status}"


def _check_timers(machine: Groups, group: ClassicGroup) -> None:
    name, timers = group.group_id, machine.timers
    if timers.get((rebalance.ADOPT, name, "")) is not None:
        return  # it came over from the new protocol, and its timers begin in a moment
    if group.status is State.PREPARING_REBALANCE:
        assert timers.get((rebalance.JOIN, name, "")) is not None, f"{name} waits for joins without an end"
    elif group.unsynced:
        assert timers.get((rebalance.SYNC, name, "")) is not None, f"{name} waits for syncs without an end"
    expected = [each.member_id for each in group.members.values() if each.is_new or not each.waits]
    for member_id in [*expected, *group.pending]:
        session = timers.get((rebalance.SESSION, name, member_id))
        assert session is not None, f"{name}: nobody looks after {member_id}"


def _check_consumer(machine: Groups, group: ConsumerGroup) -> None:
    name, members = group.group_id, list(group.members.values())
    static = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
    assert group.static_members == static, f"{name}: {group.static_members} for {static}"
    owners: dict[tuple[bytes, int], str] = {}
    for member in members:
        for place in held_by(member):
            other = owners.setdefault(place, member.member_id)
            assert other == member.member_id, f"{name}: {place} is held by {other} and {member.member_id}"
        session = machine.timers.get((timing.SESSION, name, member.member_id))
        assert session is not None, f"{name}: nobody looks after {member.member_id}"
    assert group.owners == owners, f"{name}: {group.owners} for {owners}"
    counts = (
        (group.topic_counts, Counter(topic for member in members for topic in member.topics)),
        (group.regex_counts, Counter(member.regex for member in members if member.regex)),
        (group.assignor_counts, Counter(each.assignor for each in members if each.assignor is not None)),
    )
    for kept, counted in counts:
        assert kept == counted, f"{name}: {kept} for {counted}"
    classic = sum(member.classic is not None for member in members)
    assert group.classic_count == classic, f"{name}: classic_count is {group.classic_count}, not {classic}"
    assert group.targets.keys() <= group.members.keys(), f"{name}: a target of somebody who is not a member"
    assert group.assignment_epoch <= group.epoch, f"{name}: {group.assignment_epoch} above {group.epoch}"
