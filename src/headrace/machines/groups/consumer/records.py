"""Records of consumer groups in `__consumer_offsets`, one function for each change."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.machines.groups.assignors import Target
from headrace.machines.groups.consumer.member import Member
from headrace.protocol.coordinator_records import Record, groups


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return Record(
        groups.ConsumerGroupMetadataKey(group_id=group_id),
        groups.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_metadata(group_id: str, member: Member) -> Record:
    key = groups.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return Record(key, member.metadata())


def member_target(group_id: str, member_id: str, target: Target) -> Record:
    return Record(
        groups.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        groups.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                groups.TargetPartitions(topic_id=topic, partitions=list(numbers))
                for topic, numbers in sorted(target.items())
            ]
        ),
    )


def target_epoch(group_id: str, epoch: int, assigned_ms: int) -> Record:
    return Record(
        groups.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        groups.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=assigned_ms
        ),
    )


def current_assignment(group_id: str, member: Member) -> Record:
    key = groups.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return Record(key, member.assignment())


def resolved_regex(
    group_id: str, regex: str, topics: Iterable[str], version: int, resolved_ms: int
) -> Record:
    return Record(
        groups.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        groups.ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=resolved_ms
        ),
    )


def regex_gone(group_id: str, regex: str) -> Record:
    return Record(groups.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_gone(group_id: str) -> Record:
    return Record(groups.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_gone(group_id: str, member_id: str) -> list[Record]:
    """In this order: what a member holds goes before the member."""
    return [
        _assignment_gone(group_id, member_id),
        _target_gone(group_id, member_id),
        _metadata_gone(group_id, member_id),
    ]


def group_gone(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[Record]:
    """The whole group, its epoch last: that is what makes a group be."""
    member_ids = list(member_ids)
    return [
        *(_assignment_gone(group_id, member_id) for member_id in member_ids),
        *(_target_gone(group_id, member_id) for member_id in member_ids),
        Record(groups.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_metadata_gone(group_id, member_id) for member_id in member_ids),
        *(regex_gone(group_id, regex) for regex in regexes),
        partition_metadata_gone(group_id),
        Record(groups.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _assignment_gone(group_id: str, member_id: str) -> Record:
    return Record(
        groups.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
    )


def _target_gone(group_id: str, member_id: str) -> Record:
    return Record(groups.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def _metadata_gone(group_id: str, member_id: str) -> Record:
    return Record(groups.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
