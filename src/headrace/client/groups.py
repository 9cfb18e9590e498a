"""Consumer groups: who is in them, how far they have read, and changes of both.

Classic groups and those of the new protocol (KIP-848) are described in one shape. Every method raises a
KafkaError that names the group it is about.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.client import Client
from headrace.client.cluster import TopicPartition
from headrace.client.connection import ByVersion
from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.errors import KafkaError, UnsupportedByBroker
from headrace.protocol.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from headrace.protocol.messages import consumer_group_describe as modern
from headrace.protocol.messages import describe_groups as classic
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.versioned import decode_versioned

CONSUMER_PROTOCOL = "consumer"  # the protocol type whose assignments can be read
NAMES_UNTIL = 9  # from version 10 on, offsets are told by topic id, which a deleted topic has no more
MANY_GROUPS_SINCE = 8
WITHOUT_MEMBERS = ("Empty", "Dead")
NO_OFFSET = -1


class ListedGroup(NamedTuple):
    group: str
    type: str  # "classic", "consumer", …; empty from brokers that do not tell
    state: str
    protocol_type: str


class Member(NamedTuple):
    member_id: str
    instance_id: str | None  # of a static member
    client_id: str
    host: str
    epoch: int | None  # None in a classic group, where all are at the same generation
    assignment: list[TopicPartition] | None  # None where it cannot be read: not a group of consumers
    target: list[TopicPartition] | None  # what it will have; None in a classic group


class Group(NamedTuple):
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


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._coordinators = Coordinators(client, CoordinatorKind.GROUP)

    # --- questions ---------------------------------------------------------------------------------------

    def all(self) -> list[ListedGroup]:
        """All groups of all brokers, by name."""
        self.client.contact()
        found = {
            told.group: told for broker in self.client.cluster.brokers for told in self._of_broker(broker)
        }
        return [found[name] for name in sorted(found)]

    def _of_broker(self, broker: int) -> list[ListedGroup]:
        def check(answer: Any) -> None:
            if answer.error_code:
                raise KafkaError(answer.error_code, subject=f"broker {broker}")

        answer = self.client.call(
            ListGroupsRequest(),
            what=f"asking broker {broker} for its groups",
            broker=lambda: broker,
            check=check,
        )
        return [
            ListedGroup(told.group_id, told.group_type.lower(), told.group_state, told.protocol_type)
            for told in answer.groups
        ]

    def describe(self, names: Iterable[str]) -> list[Group]:
        """The groups in the order asked; the first that is not there is raised."""
        wanted = list(names)
        coordinators = self._coordinators.find(wanted)
        return [self._describe(name, coordinators[name]) for name in wanted]

    def _describe(self, name: str, coordinator: int) -> Group:
        try:
            told = self._one_of(name, modern.ConsumerGroupDescribeRequest(group_ids=[name]))
            return modern_group(told, coordinator)
        except UnsupportedByBroker:
            pass  # a broker without the new protocol has classic groups only
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        told = self._one_of(name, classic.DescribeGroupsRequest(groups=[name]))
        if told.group_state == "Dead":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, subject=f"group {name!r}")
        return classic_group(told, coordinator)

    def _one_of(self, name: str, request: Any) -> Any:
        def check(answer: Any) -> None:
            for told in answer.groups:
                _check(name, told.error_code, told.error_message)

        answer = self._coordinators.call(name, request, what=f"describing group {name!r}", check=check)
        return answer.groups[0]

    def committed(self, name: str) -> dict[TopicPartition, Committed]:
        """Where the group goes on in each partition for which it has kept that; empty for no such group."""

        def make(version: int) -> OffsetFetchRequest:
            if version >= MANY_GROUPS_SINCE:
                asked = OffsetFetchRequestGroup(group_id=name, topics=None)
                return OffsetFetchRequest(groups=[asked])
            return OffsetFetchRequest(group_id=name, topics=None)

        def check(answer: Any) -> None:
            for group in answer.groups or [answer]:
                _check(name, group.error_code)

        answer = self._coordinators.call(
            name,
            ByVersion(OffsetFetchRequest, make),
            what=f"asking for the offsets of group {name!r}",
            check=check,
            version_max=NAMES_UNTIL,
        )
        (group,) = answer.groups or [answer]
        offsets: dict[TopicPartition, Committed] = {}
        for topic in group.topics:
            for told in topic.partitions:
                _check(name, told.error_code)
                if told.committed_offset != NO_OFFSET:
                    at = TopicPartition(topic.name, told.partition_index)
                    offsets[at] = Committed(
                        told.committed_offset, told.committed_leader_epoch, told.metadata or ""
                    )
        return offsets

    # --- orders ------------------------------------------------------------------------------------------

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets where a group without members goes on; a group that is not there comes into being."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for at, offset in sorted(offsets.items()):
            topic = topics.setdefault(at.topic, OffsetCommitRequestTopic(name=at.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=at.partition, committed_offset=offset, committed_metadata=""
                )
            )
        self._coordinators.call(
            name,
            OffsetCommitRequest(group_id=name, topics=list(topics.values())),
            what=f"committing offsets of group {name!r}",
            check=lambda answer: _check_partitions(name, answer.topics),
            version_max=NAMES_UNTIL,
        )

    def delete(self, name: str) -> None:
        """Deletes a group without members, and its offsets."""

        def check(answer: Any) -> None:
            for told in answer.results:
                _check(name, told.error_code)

        request = DeleteGroupsRequest(groups_names=[name])
        self._coordinators.call(name, request, what=f"deleting group {name!r}", check=check)

    def delete_offsets(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        """The group forgets how far it had read those partitions."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for at in sorted(partitions):
            topic = topics.setdefault(at.topic, OffsetDeleteRequestTopic(name=at.topic))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=at.partition))

        def check(answer: Any) -> None:
            _check(name, answer.error_code)
            _check_partitions(name, answer.topics)

        request = OffsetDeleteRequest(group_id=name, topics=list(topics.values()))
        self._coordinators.call(name, request, what=f"deleting offsets of group {name!r}", check=check)


def _check(name: str, code: int, message: str | None = None) -> None:
    if code:
        raise KafkaError(code, message, subject=f"group {name!r}")


def _check_partitions(name: str, topics: Iterable[Any]) -> None:
    for topic in topics:
        for told in topic.partitions:
            if told.error_code:
                at = TopicPartition(topic.name, told.partition_index)
                raise KafkaError(told.error_code, subject=f"group {name!r}, partition {at}")


# --- answers as values -----------------------------------------------------------------------------------


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
