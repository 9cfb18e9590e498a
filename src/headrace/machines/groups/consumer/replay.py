"""Where a record of a consumer group belongs: into its group, which comes with its first record and goes with
its epoch's tombstone.
"""

from __future__ import annotations

from typing import Any

from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.shard import Shard
from headrace.protocol.coordinator_records import Record, groups

CONSUMER_GROUP_KEYS = frozenset(
    {
        groups.ConsumerGroupMetadataKey,
        groups.ConsumerGroupPartitionMetadataKey,
        groups.ConsumerGroupMemberMetadataKey,
        groups.ConsumerGroupTargetAssignmentMetadataKey,
        groups.ConsumerGroupTargetAssignmentMemberKey,
        groups.ConsumerGroupCurrentMemberAssignmentKey,
        groups.ConsumerGroupRegularExpressionKey,
    }
)


def replay(shard: Shard, record: Record) -> None:
    key: Any = record.key
    group = shard.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if record.value is None:
            return  # compaction took what this tombstone is about
        # Compaction keeps the last record of each key: offsets may stand before the group they belong to, and
        # whoever held them until now was a group without a record of its own.
        group = shard.groups[key.group_id] = ConsumerGroup(key.group_id)
    if record.value is None and type(key) is groups.ConsumerGroupMetadataKey:
        del shard.groups[key.group_id]
    else:
        group.replay(record)
