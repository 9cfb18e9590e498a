"""What happens to a batch of a topic that wants more than the header checked: opened, stamped, recoded.

Ordinary topics never come here: their batches stay as the producer sent them.
"""

from headrace.base.limits import (
    PRODUCED_BATCH_OPENED_BYTES_MIN,
    PRODUCED_BATCH_OPENED_RATIO_MAX,
    UNCOMPRESSED_BATCH_BYTES_MAX,
)
from headrace.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    assign_log_append_time,
    read_header,
    renew_crc,
)
from headrace.records.compression import CODEC_NAMES, compress
from headrace.records.reader import open_records, read_rows, validate_records
from headrace.storage.config import INT64_MAX, LogConfig
from headrace.storage.errors import InvalidTimestamp

_UNCOMPRESSED = "uncompressed"
_AS_PRODUCED = "producer"


def opens_batches(config: LogConfig) -> bool:
    """Whether batches of such a topic need `admit` at all."""
    return (
        config.message_timestamp_type == "LogAppendTime"
        or config.compression_type != _AS_PRODUCED
        or config.validate_records
        or "compact" in config.cleanup_policy
        or config.message_timestamp_before_max_ms < INT64_MAX
    )


def codec_number(name: str) -> int:
    return 0 if name == _UNCOMPRESSED else int(CODEC_NAMES[name])


def admit(
    batch: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The batch as it goes into the log; raises what is wrong with its records or timestamps."""
    if header.is_control:
        return batch, header
    is_append_time = config.message_timestamp_type == "LogAppendTime"
    is_compacted = "compact" in config.cleanup_policy
    codec = header.codec
    if config.compression_type != _AS_PRODUCED:
        codec = codec_number(config.compression_type)
    max_timestamp = header.max_timestamp
    if is_compacted or config.validate_records or codec != header.codec:
        max_timestamp = validate_records(
            batch, 0, header, keys_required=is_compacted, bytes_max=opened_bytes_max(config)
        )
    if not is_append_time:
        check_timestamps(batch, header, config, wall_ms)
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


def check_timestamps(batch: memoryview, header: BatchHeader, config: LogConfig, wall_ms: int) -> None:
    if header.max_timestamp - wall_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is too far in the future")
    before_max_ms = config.message_timestamp_before_max_ms
    if before_max_ms == INT64_MAX:
        return
    for row in read_rows(batch, 0, header, bytes_max=opened_bytes_max(config)):
        if 0 <= row[1] < wall_ms - before_max_ms:
            raise InvalidTimestamp(f"timestamp {row[1]} is too far in the past")


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
