"""Groups: list, describe and delete them, and remove members.

Classic groups and those of the consumer protocol (KIP-848) have the same form of description.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.admin.cluster import ask_every_broker
from headrace.client.admin.operation import (
    Ask,
    CoordinatorOf,
    Operation,
    Outcome,
    Sent,
    as_list,
    ask,
    ask_all,
    ask_one,
    check,
    failed,
    settled,
)
from headrace.client.cluster import TopicPartition
from headrace.client.coordinator import CoordinatorKind
from headrace.client.errors import ClientError, KafkaError, UnsupportedByBroker
from headrace.protocol.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from headrace.protocol.messages import consumer_group_describe as modern
from headrace.protocol.messages import describe_groups as classic
from headrace.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
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
    """A member of a group.

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


REMOVED_BY_ADMIN = "removed by an administrator"


def coordinator_of(group: str) -> CoordinatorOf:
    return CoordinatorOf(CoordinatorKind.GROUP, group)


# --- questions -------------------------------------------------------------------------------------------


def list_groups(*, states: Iterable[str] = (), types: Iterable[str] = ()) -> Operation[list[ListedGroup]]:
    """All groups of all brokers by name; only those in some states or of some types, if these are given.

    >>> [listed.state for listed in admin.list_groups(states=["Empty"]) if listed.group == "readers"]
    ['Empty']
    """
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[ListedGroup]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        listed = [
            ListedGroup(told.group_id, told.group_type.lower(), told.group_state, told.protocol_type)
            for told in answer.groups
        ]
        return dict.fromkeys(sent.subjects, listed)

    found = yield from ask_every_broker("listing groups", request, read)
    # a group that moves to another coordinator may be listed twice
    return sorted({listed.group: listed for one in found.values() for listed in one}.values())


def describe_group(name: str) -> Operation[Group]:
    """The description of one group; raises GROUP_ID_NOT_FOUND if it does not exist.

    >>> admin.describe_group("readers").type
    'classic'
    """
    return (yield from describe_groups([name]))[name]


def describe_groups(names: str | Iterable[str]) -> Operation[dict[str, Group]]:
    """The descriptions of groups by name, of both group protocols.

    >>> {name: group.state for name, group in admin.describe_groups(["readers"]).items()}
    {'readers': 'Empty'}
    """
    wanted = as_list(names)
    outcome = yield from _described(
        wanted, lambda asked: modern.ConsumerGroupDescribeRequest(group_ids=asked), modern_group
    )
    others = [name for name in wanted if _is_of_another_kind(outcome[name])]
    outcome |= yield from _described(
        others, lambda asked: classic.DescribeGroupsRequest(groups=asked), classic_group
    )
    return settled(
        {
            name: KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, subject=f"group {name!r}")
            if isinstance(told, Group) and told.state == "Dead"
            else told
            for name, told in outcome.items()
        }
    )


def _described(names: list[str], request: Any, value: Any) -> Operation[Outcome[str, Group]]:
    def read(answer: Any, sent: Sent[str]) -> Outcome[str, Group]:
        return {
            told.group_id: failed(told.error_code, told.error_message, subject=f"group {told.group_id!r}")
            or value(told, sent.broker_id)
            for told in answer.groups
        }

    targets = {name: coordinator_of(name) for name in names}
    return (yield from ask(Ask("describing groups", targets, lambda asked, _: request(asked), read)))


def _is_of_another_kind(told: Group | ClientError) -> bool:
    """A broker without the new protocol has classic groups only; one that has it does not list them here."""
    if isinstance(told, KafkaError):
        return told.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(told, UnsupportedByBroker)


# --- orders ----------------------------------------------------------------------------------------------


def delete_group(name: str) -> Operation[None]:
    """Deletes a group without members, and its offsets.

    >>> admin.alter_group_offsets("leaving", {("orders", 0): 1})
    >>> admin.delete_group("leaving")
    """
    yield from delete_groups([name])


def delete_groups(names: str | Iterable[str]) -> Operation[None]:
    """Deletes groups without members, and their offsets.

    >>> admin.alter_group_offsets("going", {("orders", 0): 1})
    >>> admin.delete_groups(["going"])
    """

    def make(asked: list[str], _: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=asked)

    def read(answer: Any, _: Sent[str]) -> Outcome[str, bool]:
        return {
            told.group_id: failed(told.error_code, subject=f"group {told.group_id!r}") or True
            for told in answer.results
        }

    targets = {name: coordinator_of(name) for name in as_list(names)}
    yield from ask_all(Ask("deleting groups", targets, make, read))


def remove_members(
    group: str,
    members: Iterable[str] | None = None,
    *,
    instances: Iterable[str] | None = None,
    reason: str = REMOVED_BY_ADMIN,
) -> Operation[list[str]]:
    """Removes members from a group: by member id, by the instance id of static members, or, if neither is
    given, all of them; returns those that it removed. Consumers that are still running join again.

    >>> admin.remove_members("readers")
    []
    """
    chosen = [MemberIdentity(member_id=one, reason=reason) for one in members or ()]
    chosen += [MemberIdentity(group_instance_id=one, reason=reason) for one in as_list(instances or ())]
    if members is None and instances is None:
        described = yield from describe_group(group)
        chosen = [
            MemberIdentity(group_instance_id=one.instance_id, reason=reason)
            if one.instance_id
            else MemberIdentity(member_id=one.member_id, reason=reason)
            for one in described.members
        ]
    if not chosen:
        return []
    subject = f"group {group!r}"

    def read(answer: Any) -> Outcome[str, bool]:
        check(answer.error_code, subject=subject)
        outcome: Outcome[str, bool] = {}
        for told in answer.members:
            member = told.group_instance_id or told.member_id
            outcome[member] = failed(told.error_code, subject=f"{subject}, member {member!r}") or True
        return outcome

    request = LeaveGroupRequest(group_id=group, members=chosen)
    what = f"removing members of group {group!r}"
    told = yield from ask_one(what, coordinator_of(group), lambda _: request, read)
    return list(settled(told))
