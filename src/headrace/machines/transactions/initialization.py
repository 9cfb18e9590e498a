"""What becomes of a transactional id when a producer asks for its producer id and epoch.

A producer that starts says only the transactional id, and fences all before it. One that continues after an
error (InitProducerId 3+) also says what it had, and gets the next epoch if nobody came between. It may ask
twice for the same: the second time it shows the epoch before the current one, and gets the lost answer.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.machines.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction, is_exhausted
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest


class Held(NamedTuple):
    """What the producer says it had until now."""

    producer_id: int
    epoch: int


def refusal(request: InitProducerIdRequest, timeout_ms_max: int) -> ErrorCode:
    """Why the request is refused before the transactional id is looked at; NONE if it is not."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.enable2_pc:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # as Kafka, where it is switched off
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION
    if not 0 < request.transaction_timeout_ms <= timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def held_by(request: InitProducerIdRequest) -> Held | None:
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return Held(request.producer_id, request.producer_epoch)


def initialize(
    transaction: Transaction,
    now_ms: int,
    timeout_ms: int,
    held: Held | None,
    epoch_before: int,
    fresh_id: Callable[[], int],
) -> Transaction | ErrorCode:
    """The id's next state; an open transaction in the way is fenced by the caller, who sees it as still open.

    `epoch_before` is what the owner of the current epoch held when it asked for it, if it did.
    """
    if transaction.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if held is not None and not _may_continue(transaction, held, epoch_before):
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_open:
        return transaction
    if is_exhausted(transaction.producer_epoch):
        return transaction.rotated(now_ms, timeout_ms, fresh_id())
    if held is None or _owns(transaction, held):
        return transaction.initialized(now_ms, timeout_ms)
    return transaction.initialized_again(now_ms, timeout_ms)


def _owns(transaction: Transaction, held: Held) -> bool:
    return held.producer_id == transaction.producer_id and transaction.is_current(held.epoch)


def _may_continue(transaction: Transaction, held: Held, epoch_before: int) -> bool:
    if _owns(transaction, held):
        return True
    if transaction.is_open:
        # Kafka looks only at the producer id here: a late request of an older epoch aborts the transaction of
        # the rightful owner, and is fenced when it asks again. We tell it at once and harm nobody.
        return False
    if epoch_before == NO_EPOCH or held.epoch != epoch_before:
        return False
    return held.producer_id == transaction.producer_id or (
        held.producer_id == transaction.previous_producer_id and is_exhausted(held.epoch)
    )
