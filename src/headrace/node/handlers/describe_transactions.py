"""DescribeTransactions, key 65, version 0: what is known of transactional ids."""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.coordinators.gathered import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(node: Node, request: Request) -> Any:
    body: DescribeTransactionsRequest = request.body
    shards: list[Shard] = []
    states = [
        described(node, request, transactional_id, shards) for transactional_id in body.transactional_ids
    ]

    def refused(code: ErrorCode) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(transactional_id=transactional_id, error_code=code)
                for transactional_id in body.transactional_ids
            ]
        )

    reply = DescribeTransactionsResponse(transaction_states=states)
    return when_all_committed(node, request, shards, reply, refused)


def described(node: Node, request: Request, transactional_id: str, shards: list[Shard]) -> TransactionState:
    if not node.allows(request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id):
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    shard = node.transactions.shard_of(request.now, transactional_id)
    if isinstance(shard, ErrorCode):
        return TransactionState(transactional_id=transactional_id, error_code=shard)
    shards.append(shard)
    state: TransactionState = shard.machine.describe(request.now, transactional_id)
    if node.authorizer is not None:
        state.topics = [
            topic
            for topic in state.topics
            if node.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.topic)
        ]
    return state
