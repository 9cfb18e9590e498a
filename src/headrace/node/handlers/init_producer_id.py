"""InitProducerId, key 22, versions 0–5: an id and an epoch for an idempotent or transactional producer.

Without a transactional id the id is fresh and its epoch 0. With one the coordinator fences whoever used it
before, and first ends what that one left open.
"""

from typing import Any

from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.faults import FAULTS
from headrace.node.metadata_log import MetadataLog
from headrace.node.producer_ids import NotGrantedYet, ProducerIds
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class InitProducerId:
    def __init__(
        self,
        metadata: MetadataLog,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        access: Access,
    ) -> None:
        self._metadata = metadata
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._access = access

    def handle(self, request: Request) -> Any:
        body: InitProducerIdRequest = request.body
        if body.transactional_id is not None:
            return self._transactional(request, body.transactional_id)
        if not self._access.allows(request, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME):
            return refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            producer_id, granted_at = self._producer_ids.take(request.now)
        except FAULTS:
            # no new block can be granted now; clients take this code, as Kafka's, for "again, later"
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        reply = InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        return self._metadata.when_committed(request, granted_at, reply)

    def _transactional(self, request: Request, transactional_id: str) -> Any:
        if not self._access.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._transactions.shard_of(request.now, transactional_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        fresh_id = self._producer_ids.source(request.now)
        try:
            decision = shard.machine.init_producer_id(request.now, request.body, request.version, fresh_id)
        except (NotGrantedYet, *FAULTS):
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
