"""InitProducerId, key 22, versions 0–5: an id and an epoch for an idempotent or transactional producer.

Without a transactional id the id is fresh and its epoch 0. With one the coordinator fences whoever used it
before, and first ends what that one left open.
"""

from typing import Any

from headrace.base.ids import ProducerId
from headrace.machines.transactions.initialization import Initialization, ProducerEpoch
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.coordinators.transactions import TransactionCoordinator, older
from headrace.node.producer_ids import AwaitedId, NotGrantedYet, ProducerIds
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4  # PRODUCER_FENCED; older clients know INVALID_PRODUCER_EPOCH


class InitProducerId:
    def __init__(
        self,
        waiting: Waiting,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        access: Access,
    ) -> None:
        self._waiting = waiting
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._access = access

    def handle(self, request: Request) -> Any:
        body: InitProducerIdRequest = request.body
        if body.transactional_id is not None:
            return self._transactional(request, body.transactional_id)
        access = self._access
        # KIP-679: who may write to some topic may do it idempotently
        if not access.shows(
            request, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME
        ) and not access.allows_any(request, Operation.WRITE, Resource.TOPIC):
            return refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        producer_id = self._producer_ids.take(request.now)
        if producer_id is None:
            return AwaitedId(self._waiting, request, self._producer_ids, granted, not_now)
        return granted(producer_id)

    def _transactional(self, request: Request, transactional_id: str) -> Any:
        if request.body.enable2_pc and not self._access.allows(
            request, Operation.TWO_PHASE_COMMIT, Resource.TRANSACTIONAL_ID, transactional_id
        ):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._transactions.asked(request, Operation.WRITE, transactional_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        fresh_id = self._producer_ids.source(request.now)
        try:
            value = asked(request.body, transactional_id)
            decision = shard.decide(
                request.now, transactional_id, shard.machine.init_producer_id, value, fresh_id
            )
        except NotGrantedYet:
            return not_now()
        if isinstance(decision, ErrorCode):
            fresh_id.give_back()
        version = request.version
        return shard.answer(request, decision, lambda granted: respond(granted, version), refused)


def granted(producer_id: ProducerId) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def not_now() -> InitProducerIdResponse:
    """No new block can be granted now; clients take this code, as Kafka's, for "again, later"."""
    return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def asked(body: InitProducerIdRequest, transactional_id: str) -> Initialization:
    return Initialization(
        transactional_id,
        body.transaction_timeout_ms,
        body.producer_id,
        body.producer_epoch,
        is_two_phase=body.enable2_pc,
        keeps_prepared=body.keep_prepared_txn,
    )


def respond(granted: ProducerEpoch | ErrorCode, version: int) -> InitProducerIdResponse:
    if isinstance(granted, ErrorCode):
        return refused(older(granted, is_fenced_known=version >= FENCED_SINCE))
    return InitProducerIdResponse(producer_id=granted.producer_id, producer_epoch=granted.epoch)


def refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
