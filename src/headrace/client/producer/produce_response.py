"""What a Produce response means for one batch: delivered, retry, split, start the sequence over, or refused.

The rules are those of Kafka's TransactionManager.canRetry (KIP-360): a gap in the sequence is real only if
all batches before this one are acknowledged; otherwise this batch merely arrived before them.
"""

from enum import Enum, auto

from headrace.client.producer._batch import Batch
from headrace.client.producer.idempotence import PartitionSequences
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import PartitionProduceResponse

_KNOWN = {int(code): code for code in ErrorCode}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
OF_SEQUENCES = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
NO_LOG_START = -1


class Outcome(Enum):
    DELIVERED = auto()
    TOO_LARGE = auto()  # to be split
    RETRY = auto()
    RESTART = auto()  # retry, and the partition's sequence starts over at 0
    REFUSED = auto()


def outcome_of(
    told: PartitionProduceResponse,
    batch: Batch,
    order: PartitionSequences | None,
    *,
    was_renumbered: bool,
    is_transactional: bool,
) -> Outcome:
    """`order` is None without idempotence; `was_renumbered`: since the batch was sent."""
    code = told.error_code
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Outcome.DELIVERED
    if code in _TOO_LARGE and batch.count > 1:
        return Outcome.TOO_LARGE
    if order is not None and code in OF_SEQUENCES:
        if was_renumbered:
            return Outcome.RETRY  # the error is about a sequence that it does not have any more
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return _out_of_order(batch, order, is_transactional)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return _unknown_producer(told, batch, order, is_transactional)
        # nobody else uses the id: a batch of a later epoch arrived first
        return Outcome.REFUSED if is_transactional else Outcome.RESTART
    known = _KNOWN.get(code)
    return Outcome.RETRY if known is not None and known.is_retriable else Outcome.REFUSED


def _out_of_order(batch: Batch, order: PartitionSequences, is_transactional: bool) -> Outcome:
    if order.unresolved is None:
        if not order.follows(batch.base_sequence):
            return Outcome.RETRY
        return Outcome.REFUSED if is_transactional else Outcome.RESTART
    if is_transactional:
        return Outcome.REFUSED
    # the batch that expired before it never arrived: nothing else can be missing
    return Outcome.RESTART if batch.base_sequence == order.unresolved else Outcome.RETRY


def _unknown_producer(
    told: PartitionProduceResponse, batch: Batch, order: PartitionSequences, is_transactional: bool
) -> Outcome:
    if told.log_start_offset == NO_LOG_START:
        return Outcome.RETRY
    if order.last_acked_offset < told.log_start_offset:
        return Outcome.RESTART  # retention removed everything that the broker knew about this producer
    return Outcome.REFUSED if is_transactional else Outcome.RESTART
