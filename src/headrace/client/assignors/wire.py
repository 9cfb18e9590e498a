"""The bytes that members of a classic group exchange in JoinGroup and SyncGroup, as Java writes them."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.assignors.model import NO_GENERATION, Assignor, GroupMember, TellsUserData, by_topic
from headrace.client.cluster import TopicPartition
from headrace.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headrace.protocol.messages.consumer_protocol import TopicPartition as OwnedTopic
from headrace.protocol.versioned import decode_versioned, encode_versioned

VERSION = 3  # of both; readers of older versions pass over what was appended


class LastAssignment(NamedTuple):
    """What the last completed rebalance gave the member, and its generation."""

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


def write_subscription(
    assignor: Assignor,
    *,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    last: LastAssignment,
    rack: str | None,
) -> bytes:
    """`owned` is what the member has in `generation`, `last` what it once got and may have given up since."""
    user_data = assignor.user_data(*last) if isinstance(assignor, TellsUserData) else None
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            OwnedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return encode_versioned(subscription, VERSION)


def read_subscription(metadata: bytes | memoryview, instance_id: str | None) -> GroupMember:
    """Raises ProtocolError."""
    told = decode_versioned(ConsumerProtocolSubscription, metadata, newer=True)
    return GroupMember(
        topics=frozenset(told.topics),
        owned=tuple(
            TopicPartition(each.topic, index) for each in told.owned_partitions for index in each.partitions
        ),
        generation=max(told.generation_id, NO_GENERATION),
        user_data=None if told.user_data is None else bytes(told.user_data),
        instance_id=instance_id,
        rack=told.rack_id,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assigned = [
        AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), VERSION)


def read_assignment(assignment: bytes | memoryview) -> frozenset[TopicPartition]:
    """Raises ProtocolError. No bytes at all: the leader left this member out."""
    if not len(assignment):
        return frozenset()
    told = decode_versioned(ConsumerProtocolAssignment, assignment, newer=True)
    return frozenset(
        TopicPartition(each.topic, index) for each in told.assigned_partitions for index in each.partitions
    )
