"""Kafka's error codes of the exceptions that records and storage raise."""

from headrace.protocol.errors import ErrorCode
from headrace.records.errors import BadRecords, BatchTooLarge, CorruptBatch, InvalidBatch, UnsupportedCodec
from headrace.storage.errors import (
    CoordinatorFenced,
    DamagedLog,
    DiskFull,
    InconsistentTopicId,
    InvalidTimestamp,
    InvalidTransactionState,
    LogClosed,
    LogOffline,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordListTooLarge,
    StaleProducerEpoch,
    StorageError,
)

# What an append or a read may raise because of the client or the disk; anything else is our own mistake.
FAULTS = (BadRecords, StorageError)


class NotLeader(StorageError):
    """Another broker leads the partition, or nobody does."""


class NotController(StorageError):
    """This node is not the active controller: it may not append to the metadata log."""


RecordErrors = tuple[tuple[int, str], ...]  # places in a batch, and what is wrong with the records there


class Refused(Exception):
    """One part of a request is answered with this code."""

    def __init__(self, code: ErrorCode, message: str | None = None, record_errors: RecordErrors = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors


def refusal_of(fault: Exception) -> Refused:
    """The error of the part of a request that raised one of FAULTS."""
    return Refused(code_of(fault), str(fault), getattr(fault, "record_errors", ()))


_CODES: dict[type[Exception], ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    InvalidBatch: ErrorCode.INVALID_RECORD,
    UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    RecordListTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
    DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    DamagedLog: ErrorCode.KAFKA_STORAGE_ERROR,
    LogOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    LogClosed: ErrorCode.KAFKA_STORAGE_ERROR,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    NotController: ErrorCode.NOT_CONTROLLER,
}


def code_of(fault: Exception) -> ErrorCode:
    for kind in type(fault).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    raise fault
