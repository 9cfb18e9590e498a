"""ListSinks, key 30013: the sinks of this coordinator."""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.coordinators.gathered import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_sinks import ListSinksResponse


def handle(node: Node, request: Request) -> Any:
    reply = ListSinksResponse()
    shards: list[Shard] = []
    for shard in node.sinks.shards(request.now):
        if isinstance(shard, ErrorCode):
            return refused(shard)  # half a list would look like the whole one
        shards.append(shard)
        reply.sinks += [
            sink
            for sink in shard.machine.listed()
            if node.allows(request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, sink.app_id)
        ]
    return when_all_committed(node, request, shards, reply, refused)


def refused(code: ErrorCode) -> ListSinksResponse:
    return ListSinksResponse(error_code=code)
