"""InitProducerId: the next state of a transactional id when a producer asks for its producer id and epoch.

A producer that starts sends only the transactional id, and fences all earlier producers. One that continues
after an error also sends its id and epoch, and gets the next epoch if no other producer
has taken over. It may repeat the request: then it sends the epoch before the current one, and gets the same
answer.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.machines.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction, is_exhausted
from headrace.protocol.errors import ErrorCode


class ProducerEpoch(NamedTuple):
    producer_id: int
    epoch: int


class Initialization(NamedTuple):
    """A producer asks for the producer id and epoch of its transactional id."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID  # what it has had until now, if it continues after an error
    producer_epoch: int = NO_EPOCH
    is_two_phase: bool = False  # an external coordinator decides about its transactions
    keeps_prepared: bool = False


def refusal(request: Initialization, timeout_ms_max: int) -> ErrorCode:
    """Why the request is refused before the transactional id is looked at; NONE if it is not."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.is_two_phase:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # as Kafka, where it is switched off
    if request.keeps_prepared:
        return ErrorCode.UNSUPPORTED_VERSION
    if not 0 < request.timeout_ms <= timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def held_by(request: Initialization) -> ProducerEpoch | None:
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerEpoch(request.producer_id, request.producer_epoch)


def initialize(
    transaction: Transaction,
    now_ms: int,
    timeout_ms: int,
    held: ProducerEpoch | None,
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


def _owns(transaction: Transaction, held: ProducerEpoch) -> bool:
    return held.producer_id == transaction.producer_id and transaction.is_current(held.epoch)


def _may_continue(transaction: Transaction, held: ProducerEpoch, epoch_before: int) -> bool:
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
