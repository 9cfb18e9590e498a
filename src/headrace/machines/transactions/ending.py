"""EndTxn: the next state of a transaction when its producer commits or aborts it.

In transaction version 1 the epoch stays: a repeated request is recognized by the state, and a very late
request may end the next transaction of the same epoch; hence version 2 (KIP-890). There each end raises the
epoch: a repeated request has the epoch before, and a late request is fenced.

    version 2        abort, epoch before   abort, current      commit, epoch before   commit, current
    Empty            fenced                ends nothing *      fenced                 invalid
    CompleteAbort    done already          ends nothing *      invalid                invalid
    CompleteCommit   invalid               ends nothing *      done already           invalid

    * A producer cannot know whether its failed request opened a transaction. The abort raises the epoch, so
      that the failed request can no longer open one.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.machines.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
    is_exhausted,
)
from headrace.protocol.errors import ErrorCode


class End(NamedTuple):
    """A producer commits or aborts its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int  # 2: each end raises the epoch


def end_version_1(transaction: Transaction, now_ms: int, request: End) -> Transaction | ErrorCode:
    """The state to move to, or the error; NONE when it has ended so already."""
    if request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not transaction.is_current(request.producer_epoch):
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.is_open:
        return transaction.prepared(now_ms, is_commit=request.is_commit, transaction_version=1)
    return _if_ended_so(transaction, request)


def end_version_2(
    transaction: Transaction, now_ms: int, request: End, fresh_id: Callable[[], int]
) -> Transaction | ErrorCode:
    if transaction.is_ending:
        # before all else: after a rotation the producer already has the id that takes over in a moment
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if _is_repeated(transaction, request):
        return _if_ended_so(transaction, request)
    if request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not transaction.is_current(request.producer_epoch):
        return ErrorCode.PRODUCER_FENCED
    if request.is_commit and not transaction.is_open:
        return ErrorCode.INVALID_TXN_STATE
    next_producer_id = fresh_id() if is_exhausted(transaction.producer_epoch) else NO_PRODUCER_ID
    return transaction.prepared(
        now_ms, is_commit=request.is_commit, transaction_version=2, next_producer_id=next_producer_id
    )


def _is_repeated(transaction: Transaction, request: End) -> bool:
    """Whether the producer shows the id and epoch that its end, already complete, has raised."""
    if transaction.producer_epoch == MAX_EPOCH:
        return False  # it was fenced with the last epoch, which it must not learn
    held = transaction.previous_producer_id, transaction.epoch_before_end
    return transaction.epoch_before_end != NO_EPOCH and (request.producer_id, request.producer_epoch) == held


def _if_ended_so(transaction: Transaction, request: End) -> ErrorCode:
    outcome = State.COMPLETE_COMMIT if request.is_commit else State.COMPLETE_ABORT
    return ErrorCode.NONE if transaction.state is outcome else ErrorCode.INVALID_TXN_STATE
