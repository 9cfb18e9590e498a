"""Checks and changes of produced batches beyond their header: validation, timestamps, recompression.

Batches of ordinary topics need none of this, and stay as the producer sent them. The log opens small batches
itself; a job opens large ones.
"""

from headrace.base.limits import (
    OPENED_INLINE_BYTES_MAX,
    OPENED_INLINE_RECORDS_MAX,
    PRODUCED_BATCH_OPENED_BYTES_MIN,
    PRODUCED_BATCH_OPENED_RATIO_MAX,
    RECODED_INLINE_BYTES_MAX,
    RECORD_ERRORS_MAX,
    UNCOMPRESSED_BATCH_BYTES_MAX,
)
from headrace.base.values import Value
from headrace.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    Bytes,
    assign_log_append_time,
    check_produced,
    read_header,
    renew_crc,
)
from headrace.records.compression import CODEC_NAMES, compress
from headrace.records.errors import BadRecords, DecompressionBomb, InvalidBatch, InvalidRecords
from headrace.records.reader import open_records, read_rows, validate_records
from headrace.storage.config import INT64_MAX, LogConfig
from headrace.storage.disk import Disk
from headrace.storage.errors import InvalidTimestamp, MustBeOpenedFirst, StorageError
from headrace.storage.jobs import JobKind

_UNCOMPRESSED = "uncompressed"
_AS_PRODUCED = "producer"
SHOWN_ERRORS = 3  # in the message; the answer also has a list of all of them


def opens_batches(config: LogConfig) -> bool:
    """Whether batches of such a topic need `validate_batch` at all."""
    return (
        config.message_timestamp_type == "LogAppendTime"
        or config.compression_type != _AS_PRODUCED
        or config.validate_records
        or "compact" in config.cleanup_policy
        or config.message_timestamp_before_max_ms < INT64_MAX
    )


def codec_number(name: str) -> int:
    return 0 if name == _UNCOMPRESSED else int(CODEC_NAMES[name])


def check_timestamp_type(attributes: int) -> None:
    if attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("the batch has timestamp type LogAppendTime, which only the broker may set")


def validate_inline(
    batch: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int, partition: str
) -> tuple[memoryview, BatchHeader]:
    """`validate_batch` for a small batch; MustBeOpenedFirst for one that would take too long here."""
    if not opens_records(header, config) and not is_too_late(header, config, wall_ms):
        return validate_batch(batch, header, config, wall_ms, opened_bytes_max(config), partition)
    if takes_long(header, config):
        raise MustBeOpenedFirst(f"a batch of {header.size} bytes and {header.record_count} records")
    bytes_max = inline_bytes_max(header, config)
    try:
        return validate_batch(batch, header, config, wall_ms, bytes_max, partition)
    except DecompressionBomb as bomb:
        if bytes_max < opened_bytes_max(config):
            raise MustBeOpenedFirst(str(bomb)) from bomb
        raise


def opens_records(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the records themselves are looked at."""
    return (
        "compact" in config.cleanup_policy
        or config.validate_records
        or codec_after(header, config) != header.codec
        or config.message_timestamp_before_max_ms < INT64_MAX
    )


def is_too_late(header: BatchHeader, config: LogConfig, wall_ms: int) -> bool:
    """As far as the header tells. Which records are is found by opening it."""
    return (
        config.message_timestamp_type != "LogAppendTime"
        and header.max_timestamp - wall_ms > config.message_timestamp_after_max_ms
    )


def must_be_opened_first(records: Bytes, config: LogConfig) -> bool:
    """Whether `validate_inline` would say so, as far as an unchecked header tells."""
    if not opens_batches(config):
        return False
    header = read_header(records)
    return opens_records(header, config) and takes_long(header, config)


def takes_long(header: BatchHeader, config: LogConfig) -> bool:
    """As far as the header tells: what a compressed batch will be is known once it is opened."""
    return header.record_count > OPENED_INLINE_RECORDS_MAX or header.size > inline_bytes_max(header, config)


def inline_bytes_max(header: BatchHeader, config: LogConfig) -> int:
    codec = codec_after(header, config)
    return RECODED_INLINE_BYTES_MAX if codec and codec != header.codec else OPENED_INLINE_BYTES_MAX


def codec_after(header: BatchHeader, config: LogConfig) -> int:
    """What the batch is compressed with in the log."""
    name = config.compression_type
    return header.codec if name == _AS_PRODUCED else codec_number(name)


def validate_batch(
    batch: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int, bytes_max: int, partition: str
) -> tuple[memoryview, BatchHeader]:
    """The batch as it goes into the log; raises what is wrong with its records or timestamps. `partition` is
    its name, for messages.
    """
    if header.is_control:
        return batch, header
    is_append_time = config.message_timestamp_type == "LogAppendTime"
    is_compacted = "compact" in config.cleanup_policy
    codec = codec_after(header, config)
    max_timestamp = header.max_timestamp
    if is_compacted or config.validate_records or codec != header.codec:
        try:
            max_timestamp = validate_records(
                batch, 0, header, keys_required=is_compacted, bytes_max=bytes_max
            )
        except DecompressionBomb:
            raise
        except InvalidBatch:
            check_records(batch, header, config, wall_ms, bytes_max, partition)
            raise
    if not is_append_time and (
        is_too_late(header, config, wall_ms) or config.message_timestamp_before_max_ms < INT64_MAX
    ):
        check_records(batch, header, config, wall_ms, bytes_max, partition)
        if is_too_late(header, config, wall_ms):
            raise InvalidTimestamp(f"timestamp {header.max_timestamp} is too far in the future")
    if codec != header.codec:
        batch = memoryview(recode(batch, header, codec))
        header = read_header(batch)
    if is_append_time:
        assign_log_append_time(batch, 0, wall_ms)
        header = read_header(batch)
    elif max_timestamp != header.max_timestamp and not header.is_log_append_time:
        batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = max_timestamp.to_bytes(8, "big", signed=True)
        renew_crc(batch, 0)
        header = read_header(batch)
    return batch, header


def opened_bytes_max(config: LogConfig) -> int:
    """What a batch may become when it is opened here."""
    scaled = config.max_message_bytes * PRODUCED_BATCH_OPENED_RATIO_MAX
    return min(max(scaled, PRODUCED_BATCH_OPENED_BYTES_MIN), UNCOMPRESSED_BATCH_BYTES_MAX)


def check_records(
    batch: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int, bytes_max: int, partition: str
) -> None:
    """Check each record, and raise an error that names the bad ones, in Kafka's words (KIP-467)."""
    needs_key = "compact" in config.cleanup_policy
    is_append_time = config.message_timestamp_type == "LogAppendTime"
    earliest = wall_ms - config.message_timestamp_before_max_ms
    latest = wall_ms + config.message_timestamp_after_max_ms
    errors: list[tuple[int, str]] = []
    count = 0
    has_wrong_time = False
    for index, (offset, timestamp, key, _, _) in enumerate(read_rows(batch, 0, header, bytes_max=bytes_max)):
        if needs_key and key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {partition}"
        elif not is_append_time and timestamp >= 0 and not earliest <= timestamp <= latest:
            has_wrong_time = True
            text = (
                f"Timestamp {timestamp} of message with offset {offset} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]"
            )
        else:
            continue
        count += 1
        if count <= RECORD_ERRORS_MAX:
            errors.append((index, text))
    if has_wrong_time:
        raise InvalidTimestamp(
            "One or more records have been rejected due to invalid timestamp", tuple(errors)
        )
    if errors:
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:SHOWN_ERRORS]
        )
        raise InvalidRecords(
            f"One or more records have been rejected due to {count} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            tuple(errors),
        )


def recode(batch: memoryview, header: BatchHeader, codec: int) -> bytearray:
    """The same batch with its records compressed otherwise; nothing else changes."""
    records = compress(codec, open_records(batch, 0, header))
    recoded = bytearray(HEADER_BYTES + len(records))
    HEADER.pack_into(
        recoded,
        0,
        *header._replace(
            length=len(recoded) - LENGTH_OVERHEAD,
            attributes=(header.attributes & ~CODEC_MASK) | codec,
        ),
    )
    recoded[HEADER_BYTES:] = records
    renew_crc(recoded, 0)
    assert len(recoded) > ATTRIBUTES_AT
    return recoded


class ValidatedBatch(Value):
    """A batch that may be appended with this header."""

    batch: bytearray | None  # None: as it was handed in
    header: BatchHeader


class ValidateBatchJob(Value):
    """All that is checked of a client's batch before it is appended, in another process."""

    batch: bytearray
    config: LogConfig
    wall_ms: int
    partition: str  # its name, for messages

    @property
    def kind(self) -> JobKind:
        return JobKind.PROMPT

    def run(self, disk: Disk, /) -> ValidatedBatch | BadRecords | StorageError:
        """What is wrong with the batch is a result, not a failure of the job."""
        try:
            batch = memoryview(bytearray(self.batch))  # the caller still uses its own
            before = check_produced(batch, self.config.max_message_bytes)
            check_timestamp_type(before.attributes)
            bytes_max = opened_bytes_max(self.config)
            after, header = validate_batch(
                batch, before, self.config, self.wall_ms, bytes_max, self.partition
            )
        except (BadRecords, StorageError) as fault:
            return fault
        return ValidatedBatch(None if header == before else bytearray(after), header)
