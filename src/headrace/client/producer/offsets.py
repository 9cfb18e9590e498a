"""What may be given to `send_offsets`, and what it means."""

from collections.abc import Mapping
from typing import Protocol

from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.client.membership.events import CommittedOffset
from headrace.client.producer.transaction_requests import GroupMembership


class Member(Protocol):
    """A consumer, as far as a transaction is concerned."""

    def group_metadata(self) -> GroupMembership: ...


Group = str | GroupMembership | Member
Committable = int | CommittedOffset
Offsets = Mapping[TopicPartition, Committable] | Mapping[tuple[str, int], Committable]


def membership_of(group: Group) -> GroupMembership:
    """Of a bare group id nobody knows who commits, and a member that lost its partitions is not refused."""
    if isinstance(group, str):
        return GroupMembership(group)
    if isinstance(group, GroupMembership):
        return group
    return group.group_metadata()


def offsets_to_commit(offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """An offset is the next one to read, as everywhere; others have its leader epoch and a note beside it."""
    read: dict[TopicPartition, CommittedOffset] = {}
    for (topic, partition), given in offsets.items():
        offset = CommittedOffset(given) if isinstance(given, int) else given
        if offset.offset < 0:
            raise InvalidInput(f"offset {offset.offset} of {topic}-{partition} cannot be committed")
        read[TopicPartition(topic, partition)] = offset
    return read
