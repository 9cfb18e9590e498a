"""DescribeTransactions, key 65, version 0: what is known of transactional ids."""

from typing import Any

from headrace.machines.transactions.transaction import Transaction
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
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
        shard = self._transactions.asked(request, Operation.DESCRIBE, transactional_id)
        if isinstance(shard, ErrorCode):
            return TransactionState(transactional_id=transactional_id, error_code=shard)
        shards.append(shard)
        state = respond(transactional_id, shard.machine.describe(request.now, transactional_id))
        if self._access.rights is not None:
            state.topics = [
                topic
                for topic in state.topics
                if self._access.shows(request, Operation.DESCRIBE, Resource.TOPIC, topic.topic)
            ]
        return state


def respond(transactional_id: str, transaction: Transaction | None) -> TransactionState:
    if transaction is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return TransactionState(error_code=error, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions) for topic, partitions in transaction.by_topic()
        ],
    )
