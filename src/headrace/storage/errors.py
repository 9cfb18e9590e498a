"""Errors of a log, each with one Kafka error code, and which disk errors are transient. Errors in the bytes
of a batch are in records.errors.
"""

import errno

from headrace.records.errors import BatchTooLarge, CorruptBatch
from headrace.storage.disk import SyncFailed

MessageTooLarge = BatchTooLarge  # the name of the error code; records checks it with the header


class StorageError(Exception):
    """A log refuses a request."""


class RecordListTooLarge(StorageError):
    """A batch that no segment of the topic can hold: RECORD_LIST_TOO_LARGE."""


class InvalidTimestamp(StorageError):
    """Too far before or after the broker's clock: INVALID_TIMESTAMP, and of which records (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors  # each: index in the batch, and what is wrong


class MustBeOpenedFirst(StorageError):
    """The batch is too large to open in the event loop; nothing was written. Run a `ValidateBatchJob`,
    and append its result.
    """


class OutOfOrderSequence(StorageError):
    """An idempotent producer left a gap, or repeats what is no longer remembered:
    OUT_OF_ORDER_SEQUENCE_NUMBER.
    """


class StaleProducerEpoch(StorageError):
    """A newer incarnation of the producer has written already: INVALID_PRODUCER_EPOCH."""


class InvalidTransactionState(StorageError):
    """A plain write by a producer whose transaction is open in this partition: INVALID_TXN_STATE."""


class CoordinatorFenced(StorageError):
    """An end marker from a transaction coordinator that was replaced: TRANSACTION_COORDINATOR_FENCED."""


class OffsetsNotRising(StorageError):
    """A batch that keeps its offsets begins below the log's end: the sender and we disagree about the log."""


class DamagedBatch(CorruptBatch):
    """The offset lies in bytes of a segment that are damaged on disk: CORRUPT_MESSAGE."""

    def __init__(self, path: str, position: int, offset: int) -> None:
        super().__init__(f"{path}.log is damaged at position {position}: offset {offset} cannot be read")
        self.position = position


class DamagedLog(StorageError):
    """The end of the log is damaged, so that its next offset is unknown: KAFKA_STORAGE_ERROR."""


class OffsetOutOfRange(StorageError):
    """Below the log's start or beyond its end: OFFSET_OUT_OF_RANGE."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is not between the log start {start} and the log end {end}")
        self.start = start
        self.end = end


class DiskFull(StorageError):
    """No space, quota or file descriptor is left: the log ends with its last whole batch, and the call may be
    tried again: KAFKA_STORAGE_ERROR.
    """


class LogOffline(StorageError):
    """An I/O error: nothing in this log directory is trusted before a restart: KAFKA_STORAGE_ERROR."""


class LogClosed(StorageError):
    """A clean shutdown has closed the log directory and written its marker: KAFKA_STORAGE_ERROR."""


class WrongDirectory(StorageError):
    """The directory belongs to another node or cluster."""


class DamagedProperties(StorageError):
    """The owner of the directory is unknown: its meta.properties is damaged or lost."""


class InconsistentTopicId(StorageError):
    """The directory holds a partition of a topic of the same name that was another one:
    INCONSISTENT_TOPIC_ID.
    """


# What runs out and comes back: space, quota, file descriptors of the process and of the system, threads and
# processes for jobs.
_TRANSIENT = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN))


def is_io_error(error: BaseException) -> bool:
    """What a job ended with says that its directory can be trusted no more. A missing file was removed
    meanwhile; a lost connection was that to the job's process.
    """
    return (
        isinstance(error, OSError)
        and not is_transient(error)
        and not isinstance(error, FileNotFoundError | ConnectionError)
    )


def is_transient(error: OSError) -> bool:
    """Nothing was done, and the same call may succeed later. A failed fsync is never of this kind: whatever
    its errno says, nobody knows what the disk holds.
    """
    return error.errno in _TRANSIENT and not isinstance(error, SyncFailed)
