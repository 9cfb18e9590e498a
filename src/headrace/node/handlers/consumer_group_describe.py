"""ConsumerGroupDescribe, key 69, versions 0–1: state, epochs and members of groups of the new protocol."""

from typing import Any

from headrace.node.authorization import Operation, Resource, operations_bits
from headrace.node.coordinators.gathered import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(node: Node, request: Request) -> Any:
    body: ConsumerGroupDescribeRequest = request.body
    shards: list[Shard] = []
    groups = [described(node, request, group_id, shards) for group_id in body.group_ids]

    def refused(code: ErrorCode) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in body.group_ids]
        )

    return when_all_committed(node, request, shards, ConsumerGroupDescribeResponse(groups=groups), refused)


def described(node: Node, request: Request, group_id: str, shards: list[Shard]) -> DescribedGroup:
    shard = node.groups.asked(request, Operation.DESCRIBE, group_id)
    if isinstance(shard, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=shard)
    shards.append(shard)
    group: DescribedGroup = shard.machine.describe_consumer(request.now, group_id)
    if request.body.include_authorized_operations and not group.error_code:
        group.authorized_operations = operations_bits(Resource.GROUP)
    return group
