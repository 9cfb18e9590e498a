"""EndTxn, key 26, versions 0–5: commit or abort. Answered once the decision is durable; markers follow.

From version 5 on (KIP-890) each end gives the producer a new epoch, so that nothing late can touch its next
transaction.
"""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.faults import FAULTS
from headrace.node.producer_ids import NotGrantedYet, ProducerIds
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse


class EndTxn:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        access: Access,
    ) -> None:
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._access = access

    def handle(self, request: Request) -> Any:
        body: EndTxnRequest = request.body
        if not self._access.allows(
            request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id
        ):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._transactions.shard_of(request.now, body.transactional_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        fresh_id = self._producer_ids.source(request.now)
        try:
            decision = shard.machine.end(request.now, body, request.version, fresh_id)
        except (NotGrantedYet, *FAULTS):
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)
