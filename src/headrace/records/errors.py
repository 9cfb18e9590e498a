"""Errors in records that a client sent or that were read from disk.

Each `BadRecords` has one Kafka error code on the wire; the node maps them, records/ knows no code numbers.
All of them are the peer's fault (or the disk's, when the bytes came from there), never ours.
"""


class BadRecords(Exception):
    """The bytes are not a record batch that we take."""


class CorruptBatch(BadRecords):
    """The bytes were damaged on their way, length or checksum say so: CORRUPT_MESSAGE, worth another try."""


class InvalidBatch(BadRecords):
    """The bytes arrived as they were sent, and are not allowed: INVALID_RECORD, never worth another try."""


class InvalidRecords(InvalidBatch):
    """Some records of the batch are not allowed: INVALID_RECORD, and which ones (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors  # each: its place in the batch, and what is wrong with it


class UnsupportedMagic(InvalidBatch):
    """A message format other than 2: INVALID_RECORD, as Kafka answers since it dropped formats 0 and 1."""


class CorruptRecords(InvalidBatch):
    """The header is sound, the records behind it are not: truncated, overlong, or inconsistent."""


class BadCompression(InvalidBatch):
    """The codec refuses the bytes."""


class DecompressionBomb(BadCompression):
    """Opened, the batch would exceed the allowed size or ratio; no more memory than that is spent on it."""


class UnsupportedCodec(BadRecords):
    """A compression codec that does not exist or is not allowed: UNSUPPORTED_COMPRESSION_TYPE."""


class BatchTooLarge(BadRecords):
    """The batch is larger than the topic allows: MESSAGE_TOO_LARGE."""
