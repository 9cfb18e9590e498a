"""ListGroups, key 16, versions 0–5: all groups of this coordinator, by state and type."""

from typing import Any

from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.coordinators.gathered import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(node: Node, request: Request) -> Any:
    body: ListGroupsRequest = request.body
    sees_all = node.allows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    reply = ListGroupsResponse()
    shards: list[Shard] = []
    for shard in node.groups.shards(request.now):
        if isinstance(shard, ErrorCode):
            reply.error_code = shard  # what others told is sent all the same, as Kafka does
            continue
        shards.append(shard)
        listed: list[ListedGroup] = shard.machine.list_groups(body.states_filter, body.types_filter)
        reply.groups += [
            group
            for group in listed
            if sees_all or node.allows(request, Operation.DESCRIBE, Resource.GROUP, group.group_id)
        ]
    return when_all_committed(node, request, shards, reply, refused)


def refused(code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)
