"""DescribeTransactions, key 65, version 0: what is known of transactional ids."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.shard import Shard, when_all_committed
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


class DescribeTransactions:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._transactions = transactions
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: DescribeTransactionsRequest = request.body
        shards: list[Shard[Any]] = []
        states = [
            self._described(request, transactional_id, shards) for transactional_id in body.transactional_ids
        ]

        def refused(code: ErrorCode) -> DescribeTransactionsResponse:
            return DescribeTransactionsResponse(
                transaction_states=[
                    TransactionState(transactional_id=transactional_id, error_code=code)
                    for transactional_id in body.transactional_ids
                ]
            )

        reply = DescribeTransactionsResponse(transaction_states=states)
        return when_all_committed(self._waiting, request, shards, reply, refused)

    def _described(
        self, request: Request, transactional_id: str, shards: list[Shard[Any]]
    ) -> TransactionState:
        if not self._access.allows(request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id):
            return TransactionState(
                transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
        shard = self._transactions.shard_of(request.now, transactional_id)
        if isinstance(shard, ErrorCode):
            return TransactionState(transactional_id=transactional_id, error_code=shard)
        shards.append(shard)
        state: TransactionState = shard.machine.describe(request.now, transactional_id)
        if self._access.authorizer is not None:
            state.topics = [
                topic
                for topic in state.topics
                if self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, topic.topic)
            ]
        return state
