"""ConsumerGroupDescribe: the group as an admin sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.machines.coordination import Topics
from headrace.machines.groups.assignors import Target
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.targets import preferred
from headrace.machines.groups.shard import Shard
from headrace.protocol.messages import consumer_group_describe as api

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(shard: Shard, group: ConsumerGroup) -> api.DescribedGroup:
    return api.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred(shard, group.assignor_counts),
        members=[
            _described(shard.topics, member, group.targets.get(member.member_id, {}))
            for member in group.members.values()
        ],
    )


def _described(topics: Topics, member: Member, target: Target) -> api.Member:
    held = {topic: list(epochs) for topic, epochs in member.assigned.items()}
    for topic, epochs in member.revoking.items():
        held.setdefault(topic, []).extend(epochs)
    return api.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_named(topics, held),
        target_assignment=_named(topics, target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(topics: Topics, partitions: Mapping[bytes, Iterable[int]]) -> api.Assignment:
    """Topics that are gone have no name, and are left out."""
    return api.Assignment(
        topic_partitions=[
            api.TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(numbers))
            for topic, numbers in sorted(partitions.items())
            if (name := topics.name_of(topic)) is not None
        ]
    )
