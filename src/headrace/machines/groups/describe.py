"""Groups as administrators see them: classic ones (DescribeGroups), those of the consumer protocol
(ConsumerGroupDescribe), and lists of both (ListGroups).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.machines.coordination import Topics
from headrace.machines.groups.assignors import Target
from headrace.machines.groups.classic.group import ClassicGroup, State
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.targets import preferred
from headrace.machines.groups.group import ListedGroup

if TYPE_CHECKING:
    from headrace.machines.groups.groups import Groups


class ClassicMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedClassicGroup(NamedTuple):
    state: str
    protocol_type: str
    protocol: str  # empty while the group rebalances: none is chosen
    members: list[ClassicMember]


# Topic id, topic, partitions.
NamedPartitions = list[tuple[bytes, str, list[int]]]


class ConsumerMember(NamedTuple):
    member: Member
    assignment: NamedPartitions  # what it holds
    target: NamedPartitions


class DescribedConsumerGroup(NamedTuple):
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[ConsumerMember]


def describe_classic(group: ClassicGroup) -> DescribedClassicGroup:
    is_stable = group.status is State.STABLE
    return DescribedClassicGroup(
        group.status.value,
        group.protocol_type or "",
        (group.protocol or "") if is_stable else "",
        [
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata_of(group.protocol) if is_stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_consumer(machine: Groups, group: ConsumerGroup) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group.state_name,
        group.epoch,
        group.assignment_epoch,
        preferred(machine, group.assignor_counts),
        [
            _described(machine.topics, member, group.targets.get(member.member_id, {}))
            for member in group.members.values()
        ],
    )


def _described(topics: Topics, member: Member, target: Target) -> ConsumerMember:
    held = {topic: list(epochs) for topic, epochs in member.assigned.items()}
    for topic, epochs in member.revoking.items():
        held.setdefault(topic, []).extend(epochs)
    return ConsumerMember(member, _named(topics, held), _named(topics, target))


def _named(topics: Topics, partitions: Mapping[bytes, Iterable[int]]) -> NamedPartitions:
    """Topics that are gone have no name, and are left out."""
    return [
        (topic, name, sorted(numbers))
        for topic, numbers in sorted(partitions.items())
        if (name := topics.name_of(topic)) is not None
    ]


def list_groups(machine: Groups, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    listed = (machine.groups[group_id].listed() for group_id in sorted(machine.groups))
    return [
        group
        for group in listed
        if (not wanted_states or group.state.lower() in wanted_states)
        and (not wanted_types or group.kind.lower() in wanted_types)
    ]
