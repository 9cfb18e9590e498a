"""ListTransactions, key 66, versions 0–2: transactions of this coordinator, by state, producer, age and
name.
"""

from typing import Any

from headrace.machines.transactions.listing import Filters, InvalidPattern
from headrace.machines.transactions.transaction import Transaction
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


class ListTransactions:
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
        try:
            filters = filters_of(request.body)
        except InvalidPattern:
            return refused(ErrorCode.INVALID_REGULAR_EXPRESSION)
        reply = ListTransactionsResponse(unknown_state_filters=filters.unknown_states)
        shards: list[Shard[Any]] = []
        for shard in self._transactions.shards(request.now):
            if isinstance(shard, ErrorCode):
                # half a list would look like the whole one
                return refused(shard)
            shards.append(shard)
            reply.transaction_states += [
                respond(transaction)
                for transaction in shard.machine.list_transactions(request.now, filters)
                if self._access.shows(
                    request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transaction.transactional_id
                )
            ]
        return when_all_committed(self._waiting, request, shards, reply, refused)


def filters_of(body: ListTransactionsRequest) -> Filters:
    return Filters.of(
        body.state_filters, body.producer_id_filters, body.duration_filter, body.transactional_id_pattern
    )


def respond(transaction: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.text,
    )


def refused(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)
