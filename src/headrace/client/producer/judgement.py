"""What a broker's answer means for one batch: the small hard question of an idempotent producer.

The rules are those of Kafka's TransactionManager.canRetry (KIP-360): a gap in the sequences is real only if
all that precedes the batch is acknowledged; otherwise the batch merely came before its turn.
"""

from enum import Enum, auto

from headrace.client.producer._batch import Batch
from headrace.client.producer.sequences import Order
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


class Verdict(Enum):
    DELIVERED = auto()
    TOO_LARGE = auto()  # as a whole
    RETRY = auto()
    RESTART = auto()  # again, and the partition's sequences begin anew
    REFUSED = auto()


def judge(
    told: PartitionProduceResponse,
    batch: Batch,
    order: Order | None,
    *,
    was_renumbered: bool,
    is_transactional: bool,
) -> Verdict:
    """`order` is None without idempotence; `was_renumbered`: since the batch was sent."""
    code = told.error_code
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DELIVERED
    if code in _TOO_LARGE and batch.count > 1:
        return Verdict.TOO_LARGE
    if order is not None and code in OF_SEQUENCES:
        if was_renumbered:
            return Verdict.RETRY  # the error is about numbers that it has no more
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return _out_of_order(batch, order, is_transactional)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return _unknown_producer(told, batch, order, is_transactional)
        # of an id that nobody shares: a batch of a later epoch overtook it
        return Verdict.REFUSED if is_transactional else Verdict.RESTART
    known = _KNOWN.get(code)
    return Verdict.RETRY if known is not None and known.is_retriable else Verdict.REFUSED


def _out_of_order(batch: Batch, order: Order, is_transactional: bool) -> Verdict:
    if order.unresolved is None:
        if not order.follows(batch.base_sequence):
            return Verdict.RETRY
        return Verdict.REFUSED if is_transactional else Verdict.RESTART
    if is_transactional:
        return Verdict.REFUSED
    # what expired before it never arrived: nothing else can be missing
    return Verdict.RESTART if batch.base_sequence == order.unresolved else Verdict.RETRY


def _unknown_producer(
    told: PartitionProduceResponse, batch: Batch, order: Order, is_transactional: bool
) -> Verdict:
    if told.log_start_offset == NO_LOG_START:
        return Verdict.RETRY
    if order.last_acked_offset < told.log_start_offset:
        return Verdict.RESTART  # retention took all that the broker knew of us
    return Verdict.REFUSED if is_transactional else Verdict.RESTART
