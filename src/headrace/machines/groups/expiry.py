"""Offsets that nobody asked for in `offsets.retention.minutes` go, and with the last of them an empty group.

A group without members ages as a whole, from the moment it became empty. Groups that only commit, and topics
that a living group does not subscribe to any more, age offset by offset, from each commit. What an open
transaction may still change stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.base.time import Now
from headrace.machines.coordination import Decision
from headrace.machines.groups.group import Group
from headrace.machines.groups.offsets import NO_EXPIRY, Committed, Place, tombstone
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records import Record

# Tombstones in one batch, some 60 bytes each: far below any max.message.bytes.
TOMBSTONES_PER_BATCH = 1_000


def expire(shard: Shard, now: Now) -> list[Decision]:
    decisions: list[Decision] = []
    for group_id in sorted(shard.groups):
        group = shard.groups[group_id]
        expired, are_all = _expired(shard, now, group)
        records = [tombstone(place) for place in expired]
        if are_all and group.is_empty:
            records += group.tombstones()
        decisions += in_batches(records)
    return decisions


def _expired(shard: Shard, now: Now, group: Group) -> tuple[list[Place], bool]:
    """Where the group's offsets are too old, and whether nothing of it would be left."""
    offsets, group_id = shard.offsets, group.group_id
    committed = offsets.of_group(group_id)
    is_open = offsets.has_open_transactions(group_id)
    if not committed:
        return [], not is_open
    if not group.expires_offsets():
        return [], False
    retention_ms = shard.settings.offsets_retention_minutes * 60_000
    empty_since_ms = group.empty_since_ms()
    expired: list[Place] = []
    count = 0
    for topic, partitions in committed.items():
        count += len(partitions)
        if group.is_subscribed_to(topic):
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


def forget_topics(shard: Shard, names: Iterable[str]) -> list[Decision]:
    """Topics were deleted: nobody will go on from where they were read."""
    decisions: list[Decision] = []
    for places in shard.offsets.places_of_topics(set(names)).values():
        decisions += in_batches([tombstone(place) for place in places])
    return decisions


def in_batches(records: list[Record]) -> list[Decision]:
    return [
        Decision(records=records[start : start + TOMBSTONES_PER_BATCH])
        for start in range(0, len(records), TOMBSTONES_PER_BATCH)
    ]
