"""DescribeGroups, key 15, versions 0–6: state and members of classic groups."""

from typing import Any

from headrace.node.authorization import Operation, Resource, operations_bits
from headrace.node.coordinators.gathered import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(node: Node, request: Request) -> Any:
    body: DescribeGroupsRequest = request.body
    shards: list[Shard] = []
    groups = [described(node, request, group_id, shards) for group_id in body.groups]

    def refused(code: ErrorCode) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in body.groups]
        )

    return when_all_committed(node, request, shards, DescribeGroupsResponse(groups=groups), refused)


def described(node: Node, request: Request, group_id: str, shards: list[Shard]) -> DescribedGroup:
    shard = node.groups.asked(request, Operation.DESCRIBE, group_id)
    if isinstance(shard, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=shard)
    shards.append(shard)
    group: DescribedGroup = shard.machine.describe(request.now, group_id, request.version)
    if request.body.include_authorized_operations:
        group.authorized_operations = operations_bits(Resource.GROUP)
    return group
