"""Embedded messages of the classic protocol: the subscription in JoinGroup and the assignment in SyncGroup.

In a consumer group the coordinator reads and writes them; in a classic group it only passes them on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headrace.machines.coordination import Topics
from headrace.machines.groups.consumer.member import Member
from headrace.protocol.coordinator_records.groups import ClassicMemberMetadata
from headrace.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headrace.protocol.versioned import decode_versioned, encode_versioned, version_of


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    return decode_versioned(ConsumerProtocolSubscription, metadata, newer=True)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    return decode_versioned(ConsumerProtocolAssignment, assignment, newer=True)


def write_assignment(partitions: Mapping[bytes, Iterable[int]], subscription: bytes, topics: Topics) -> bytes:
    """In the version that the member's subscription has; topics that are gone are left out."""
    named = {topics.name_of(topic_id): sorted(numbers) for topic_id, numbers in partitions.items()}
    assigned = [
        AssignedTopic(topic=name, partitions=numbers)
        for name, numbers in sorted((name, numbers) for name, numbers in named.items() if name is not None)
    ]
    version = min(version_of(subscription), ConsumerProtocolAssignment.VERSIONS.last)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def owned_ids(owned: Iterable[TopicPartition], topics: Topics) -> dict[bytes, list[int]]:
    """What the subscription says the member owns, of topics that exist."""
    found: dict[bytes, list[int]] = {}
    for topic in owned:
        topic_id = topics.id_of(topic.topic)
        if topic_id is not None:
            found.setdefault(topic_id, []).extend(topic.partitions)
    return found


def metadata_of(classic: ClassicMemberMetadata, protocol: str) -> bytes:
    return next((bytes(each.metadata) for each in classic.supported_protocols if each.name == protocol), b"")


def common_protocol(members: Sequence[Member]) -> str:
    """Each member votes for the first of its protocols that all have."""
    offers = [
        [protocol.name for protocol in member.classic.supported_protocols]
        for member in members
        if member.classic is not None
    ]
    common = set(offers[0]).intersection(*offers)
    votes = Counter(next(name for name in names if name in common) for names in offers)
    return max(sorted(votes), key=votes.__getitem__)
