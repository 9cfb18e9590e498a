"""AddOffsetsToTxn, key 25, versions 0–4: a transaction is about to commit offsets of a group."""

from contextlib import suppress
from typing import Any

from headrace.base.limits import COORDINATOR_NAME_CHARACTERS_MAX
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator, older
from headrace.node.error_codes import FAULTS
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2  # PRODUCER_FENCED; older clients know INVALID_PRODUCER_EPOCH


class AddOffsetsToTxn:
    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        access: Access,
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._access = access

    def handle(self, request: Request) -> Any:
        body: AddOffsetsToTxnRequest = request.body
        if not self._access.allows(
            request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id
        ):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not self._access.allows(request, Operation.READ, Resource.GROUP, body.group_id):
            return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if len(body.group_id) > COORDINATOR_NAME_CHARACTERS_MAX:
            return refused(ErrorCode.INVALID_REQUEST)
        place = self._groups.place_of(body.group_id)
        if place is None:
            # a producer asks this before it looks for the group's coordinator, which would create the topic
            with suppress(*FAULTS):
                self._groups.create_topic(request.now)
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        # loaded while it is empty, in no time: the transaction's end will be written there, offsets or not
        self._groups.shard_of(request.now, body.group_id)
        shard = self._transactions.shard_of(request.now, body.transactional_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        decision = shard.decide(
            request.now,
            body.transactional_id,
            shard.machine.add_offsets,
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            place,
        )
        version = request.version
        return shard.answer(request, decision, lambda code: respond(code, version), refused)


def respond(code: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    return refused(older(code, is_fenced_known=version >= FENCED_SINCE))


def refused(code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)
