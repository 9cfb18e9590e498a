"""Groups as values: classic ones and those of the new protocol (KIP-848) in one shape."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.messages import consumer_group_describe as modern
from headrace.protocol.messages import describe_groups as classic
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from headrace.protocol.versioned import decode_versioned

CONSUMER_PROTOCOL = "consumer"  # the protocol type whose assignments can be read
WITHOUT_MEMBERS = ("Empty", "Dead")


class ListedGroup(NamedTuple):
    """A group in a list.

    >>> [listed.type for listed in admin.list_groups() if listed.group == "readers"]
    ['classic']
    """

    group: str
    type: str  # "classic", "consumer", …; empty from brokers that do not tell
    state: str
    protocol_type: str


class Member(NamedTuple):
    """Who reads.

    >>> admin.describe_group("readers").members
    []
    """

    member_id: str
    instance_id: str | None  # of a static member
    client_id: str
    host: str
    epoch: int | None  # None in a classic group, where all are at the same generation
    assignment: list[TopicPartition] | None  # None where it cannot be read: not a group of consumers
    target: list[TopicPartition] | None  # what it will have; None in a classic group


class Group(NamedTuple):
    """A group and its members.

    >>> group = admin.describe_group("readers")
    >>> group.state, group.is_active
    ('Empty', False)
    """

    group: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None  # None in a classic group
    coordinator: int
    members: list[Member]

    @property
    def is_active(self) -> bool:
        return bool(self.members) or self.state not in WITHOUT_MEMBERS


def modern_group(told: modern.DescribedGroup, coordinator: int) -> Group:
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            _host(member.client_host),
            member.member_epoch,
            _partitions((topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions),
            _partitions(
                (topic.topic_name, topic.partitions) for topic in member.target_assignment.topic_partitions
            ),
        )
        for member in told.members
    ]
    return Group(
        told.group_id,
        "consumer",
        told.group_state,
        CONSUMER_PROTOCOL,
        told.assignor_name,
        told.group_epoch,
        coordinator,
        members,
    )


def classic_group(told: classic.DescribedGroup, coordinator: int) -> Group:
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            _host(member.client_host),
            None,
            _classic_assignment(told.protocol_type, member.member_assignment),
            None,
        )
        for member in told.members
    ]
    return Group(
        told.group_id,
        "classic",
        told.group_state,
        told.protocol_type,
        told.protocol_data,
        None,
        coordinator,
        members,
    )


def _classic_assignment(protocol_type: str, data: bytes) -> list[TopicPartition] | None:
    """What consumers agreed on among themselves; the bytes of others, or broken ones, stay closed."""
    if protocol_type != CONSUMER_PROTOCOL:
        return None
    if not data:
        return []  # the group is rebalancing
    try:
        assignment = decode_versioned(ConsumerProtocolAssignment, data, newer=True)
    except (MalformedMessage, UnsupportedVersion):
        return None
    return _partitions((topic.topic, topic.partitions) for topic in assignment.assigned_partitions)


def _partitions(topics: Iterable[tuple[str, list[int]]]) -> list[TopicPartition]:
    return sorted(TopicPartition(name, index) for name, indexes in topics for index in indexes)


def _host(text: str) -> str:
    return text.removeprefix("/")  # Java writes an address without a name so
