"""Expiry of committed offsets after `offsets.retention.minutes`; an empty group is removed with its last
offset.

The offsets of a group without members expire together; the time begins when the group became empty. Offsets
of groups that only commit, and of topics to which a group is no longer subscribed, expire one by one, from
each commit. Offsets that an open transaction may still change do not expire, and those of a group that the
retention of the topic waits for neither: without its offset nobody would know what the group still needs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.group import Group
from headrace.machines.groups.offsets import NO_EXPIRY, Committed, OffsetKey, tombstone
from headrace.protocol.coordinator_records import Record

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups

# Tombstones in one batch, some 60 bytes each: far below any max.message.bytes.
TOMBSTONES_PER_BATCH = 1_000

# Offsets whose topics are looked up in one step: about a millisecond.
OFFSETS_PER_STEP = 40_000


def expire(machine: Groups, now: Now) -> list[Decision]:
    decisions: list[Decision] = []
    for group_id in sorted(machine.groups):
        group = machine.groups[group_id]
        expired, are_all = _expired(machine, now, group)
        records = [tombstone(key) for key in expired]
        if are_all and group.is_empty:
            records += group.tombstones()
        decisions += in_batches(records)
    return decisions


def _expired(machine: Groups, now: Now, group: Group) -> tuple[list[OffsetKey], bool]:
    """Where the group's offsets are too old, and whether nothing of it would be left."""
    offsets, group_id = machine.offsets, group.group_id
    committed = offsets.of_group(group_id)
    is_open = offsets.has_open_transactions(group_id)
    if not committed:
        return [], not is_open
    if not group.expires_offsets():
        return [], False
    retention_ms = machine.settings.offsets_retention_minutes * 60_000
    empty_since_ms = group.empty_since_ms()
    expired: list[OffsetKey] = []
    count = 0
    for topic, partitions in committed.items():
        count += len(partitions)
        if group.is_subscribed_to(topic):
            continue
        if machine.topics.awaits(topic, group_id):
            continue
        for partition, offset in partitions.items():
            if _is_expired(offset, now.wall_ms, empty_since_ms, retention_ms) and not (
                is_open and offsets.is_unstable(group_id, topic, partition)
            ):
                expired.append((group_id, topic, partition))
    return expired, len(expired) == count and not is_open


def _is_expired(offset: Committed, wall_ms: int, empty_since_ms: int | None, retention_ms: int) -> bool:
    _, _, _, committed_ms, expires_ms, _ = offset
    if expires_ms != NO_EXPIRY:
        return wall_ms >= expires_ms
    return wall_ms - (committed_ms if empty_since_ms is None else empty_since_ms) >= retention_ms


def forget_topics(machine: Groups, names: Iterable[str]) -> list[Decision]:
    """Removes the offsets of deleted topics."""
    return _forget(machine.offsets.keys_of_topics(set(names)))


def forget_gone_topics(machine: Groups) -> Generator[list[Decision], None, list[Decision]]:
    """Removes the offsets of topics that were deleted while nobody coordinated these groups. Each step has
    what is decided about some of them, and is to be carried out before the next. The last one returns.
    """
    steps = machine.offsets.keys_of_gone(machine.topics.id_of, OFFSETS_PER_STEP)
    while True:
        try:
            keys_by_group = next(steps)
        except StopIteration as end:
            return _forget(end.value)
        yield _forget(keys_by_group)


def _forget(keys_by_group: Mapping[str, list[OffsetKey]]) -> list[Decision]:
    decisions: list[Decision] = []
    for keys in keys_by_group.values():
        decisions += in_batches([tombstone(key) for key in keys])
    return decisions


def in_batches(records: list[Record]) -> list[Decision]:
    return [
        Decision(records=records[start : start + TOMBSTONES_PER_BATCH])
        for start in range(0, len(records), TOMBSTONES_PER_BATCH)
    ]
