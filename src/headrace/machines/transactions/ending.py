"""What becomes of a transaction when its producer commits or aborts it.

Up to EndTxn 4 (transaction version 1) the epoch stays: a repeated request is known by the state it finds, and
one that comes very late may end the next transaction of the same epoch; hence version 2 (KIP-890). From
EndTxn 5 on each end raises the epoch: a repeated request shows the epoch before, and a late one is fenced.

    version 2        abort, epoch before   abort, current      commit, epoch before   commit, current
    Empty            fenced                ends nothing *      fenced                 invalid
    CompleteAbort    done already          ends nothing *      invalid                invalid
    CompleteCommit   invalid               ends nothing *      done already           invalid

    * A producer cannot know whether its failed request opened a transaction. The abort raises the epoch, so
      that the failed request can no longer open one.
"""

from collections.abc import Callable

from headrace.machines.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    Transaction,
    is_exhausted,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest


def end_version_1(transaction: Transaction, now_ms: int, request: EndTxnRequest) -> Transaction | ErrorCode:
    """The state to move to, or the error; NONE when it has ended so already."""
    if request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not transaction.is_current(request.producer_epoch):
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.is_open:
        return transaction.prepared(now_ms, is_commit=request.committed, transaction_version=1)
    return _if_ended_so(transaction, request)


def end_version_2(
    transaction: Transaction, now_ms: int, request: EndTxnRequest, fresh_id: Callable[[], int]
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
    if request.committed and not transaction.is_open:
        return ErrorCode.INVALID_TXN_STATE
    next_producer_id = fresh_id() if is_exhausted(transaction.producer_epoch) else NO_PRODUCER_ID
    return transaction.prepared(
        now_ms, is_commit=request.committed, transaction_version=2, next_producer_id=next_producer_id
    )


def _is_repeated(transaction: Transaction, request: EndTxnRequest) -> bool:
    """Whether the producer shows the id and epoch that its end, already complete, has raised."""
    if transaction.producer_epoch == MAX_EPOCH:
        return False  # it was fenced with the last epoch, which it must not learn
    held = transaction.previous_producer_id, transaction.epoch_before_end
    return transaction.epoch_before_end != NO_EPOCH and (request.producer_id, request.producer_epoch) == held


def _if_ended_so(transaction: Transaction, request: EndTxnRequest) -> ErrorCode:
    outcome = State.COMPLETE_COMMIT if request.committed else State.COMPLETE_ABORT
    return ErrorCode.NONE if transaction.state is outcome else ErrorCode.INVALID_TXN_STATE
