"""ListTransactions, key 66, versions 0–2: transactions of this coordinator, by state, producer, age and
name.
"""

from typing import Any

from headrace.machines.transactions.listing import Filters, InvalidPattern
from headrace.node.authorization import Operation, Resource
from headrace.node.coordinators.gathered import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_transactions import ListTransactionsResponse


def handle(node: Node, request: Request) -> Any:
    try:
        filters = Filters.of(request.body)
    except InvalidPattern:
        return refused(ErrorCode.INVALID_REGULAR_EXPRESSION)
    reply = ListTransactionsResponse(unknown_state_filters=filters.unknown_states)
    shards: list[Shard] = []
    for shard in node.transactions.shards(request.now):
        if isinstance(shard, ErrorCode):
            # half a list would look like the whole one
            return refused(shard)
        shards.append(shard)
        reply.transaction_states += [
            state
            for state in shard.machine.list_transactions(request.now, filters)
            if node.allows(request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)
        ]
    return when_all_committed(node, request, shards, reply, refused)


def refused(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)
