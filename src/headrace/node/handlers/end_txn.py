"""EndTxn, key 26, versions 0–5: commit or abort. Answered once the decision is durable; markers follow.

From version 5 on (KIP-890) each end gives the producer a new epoch, so that nothing late can touch its next
transaction.
"""

from typing import Any

from headrace.machines.transactions.ending import End
from headrace.machines.transactions.initialization import ProducerEpoch
from headrace.node.authorization import Operation
from headrace.node.coordinators.transactions import TransactionCoordinator, older
from headrace.node.error_codes import FAULTS
from headrace.node.producer_ids import NotGrantedYet, ProducerIds
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2  # PRODUCER_FENCED; older clients know INVALID_PRODUCER_EPOCH
RAISES_EPOCH_SINCE = 5


class EndTxn:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
    ) -> None:
        self._transactions = transactions
        self._producer_ids = producer_ids

    def handle(self, request: Request) -> Any:
        body: EndTxnRequest = request.body
        shard = self._transactions.asked(request, Operation.WRITE, body.transactional_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        fresh_id = self._producer_ids.source(request.now)
        try:
            value = asked(body, request.version)
            decision = shard.decide(request.now, body.transactional_id, shard.machine.end, value, fresh_id)
        except (NotGrantedYet, *FAULTS):
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(decision, ErrorCode):
            fresh_id.give_back()
        version = request.version
        return shard.answer(request, decision, lambda ended: respond(ended, version), refused)


def asked(body: EndTxnRequest, version: int) -> End:
    return End(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        is_commit=body.committed,
        transaction_version=2 if version >= RAISES_EPOCH_SINCE else 1,
    )


def respond(ended: ProducerEpoch | ErrorCode, version: int) -> EndTxnResponse:
    if isinstance(ended, ErrorCode):
        return refused(older(ended, is_fenced_known=version >= FENCED_SINCE))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)


def refused(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)
