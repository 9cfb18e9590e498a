"""ConsumerGroupDescribe, key 69, versions 0–1: state, epochs and members of groups of the new protocol."""

from typing import Any

from headrace.machines.groups.describe import ConsumerMember, DescribedConsumerGroup, NamedPartitions
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Shard
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


class ConsumerGroupDescribe:
    def __init__(
        self,
        groups: GroupCoordinator,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: ConsumerGroupDescribeRequest = request.body
        shards: list[Shard[Any]] = []
        groups = [self._described(request, group_id, shards) for group_id in body.group_ids]

        def refused(code: ErrorCode) -> ConsumerGroupDescribeResponse:
            return ConsumerGroupDescribeResponse(
                groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in body.group_ids]
            )

        return when_all_committed(
            self._waiting, request, shards, ConsumerGroupDescribeResponse(groups=groups), refused
        )

    def _described(self, request: Request, group_id: str, shards: list[Shard[Any]]) -> DescribedGroup:
        shard = self._groups.asked(request, Operation.DESCRIBE, group_id)
        if isinstance(shard, ErrorCode):
            return DescribedGroup(group_id=group_id, error_code=shard)
        if self._groups.waits_for_group(shard, group_id):
            shards.append(shard)
        group = respond(group_id, shard.machine.describe_consumer(request.now, group_id))
        if request.body.include_authorized_operations and not group.error_code:
            group.authorized_operations = self._access.operations_bits(request, Resource.GROUP, group_id)
        return group if self._sees_all(request, group) else hidden(group_id)

    def _sees_all(self, request: Request, group: DescribedGroup) -> bool:
        """Whether the client may describe every topic that members have or will have."""
        if self._access.rights is None:
            return True
        names = {
            topic.topic_name
            for member in group.members
            for each in (member.assignment, member.target_assignment)
            for topic in each.topic_partitions
        }
        return all(self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, name) for name in names)


def hidden(group_id: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def respond(group_id: str, described: DescribedConsumerGroup | str) -> DescribedGroup:
    """Of a group, or of the reason why there is none."""
    if isinstance(described, str):
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {described}.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=[described_member(one) for one in described.members],
    )


def described_member(described: ConsumerMember) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=assignment(described.assignment),
        target_assignment=assignment(described.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def assignment(partitions: NamedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, name, numbers in partitions
        ]
    )
