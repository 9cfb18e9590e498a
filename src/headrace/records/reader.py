"""Reading of batches: headers, records and searches by time, from the bytes of a log or a fetch.

Every function takes a batch that is whole and whose checksum is right (check_crc); what its records hold
is not trusted all the same, and decompression is capped. Errors are those of records.errors.
"""

from collections.abc import Iterator

from headrace.base.limits import COMPRESSION_RATIO_MAX, UNCOMPRESSED_BATCH_BYTES_MAX
from headrace.records import _codec
from headrace.records._codec import Row
from headrace.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    crc_of,
    read_header,
)
from headrace.records.compression import decompress
from headrace.records.errors import CorruptBatch, UnsupportedMagic


def batches(view: Bytes, position: int = 0, *, check: bool = True) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; a batch cut off at the end is left out, as Fetch allows.

    With `check`, checksums too: CorruptBatch at the first wrong one.
    """
    end = len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        if header.magic != MAGIC:
            raise UnsupportedMagic(f"message format {header.magic} is not supported, only 2 is")
        size = header.length + LENGTH_OVERHEAD
        if size < HEADER_BYTES:
            raise CorruptBatch(f"the batch has {size} bytes by its length, less than its header")
        if size > end - position:
            return
        if check and crc_of(view, position, size) != header.crc:
            raise CorruptBatch(f"checksum of the batch at offset {header.base_offset} is wrong")
        yield position, header
        position += size


def open_records(
    view: Bytes,
    position: int,
    header: BatchHeader,
    *,
    bytes_max: int = UNCOMPRESSED_BATCH_BYTES_MAX,
    ratio_max: int = COMPRESSION_RATIO_MAX,
) -> bytes:
    """The uncompressed records of the batch at `position`."""
    data = memoryview(view)[position + HEADER_BYTES : position + header.length + LENGTH_OVERHEAD]
    if not header.codec:
        return bytes(data)
    return decompress(header.codec, data, bytes_max=bytes_max, ratio_max=ratio_max)


def read_rows(
    view: Bytes, position: int, header: BatchHeader, *, bytes_max: int = UNCOMPRESSED_BATCH_BYTES_MAX
) -> list[Row]:
    """All records of the batch as (offset, timestamp, key, value, headers)."""
    return _codec.decode_rows(
        open_records(view, position, header, bytes_max=bytes_max),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        append_time(header),
    )


def read_keys(view: Bytes, position: int, header: BatchHeader) -> list[tuple[int, bytes | None, bool]]:
    """All records of the batch as (offset, key, value is null)."""
    return _codec.decode_keys(open_records(view, position, header), header.record_count, header.base_offset)


def first_from(
    view: Bytes,
    position: int,
    header: BatchHeader,
    target: int,
    *,
    bytes_max: int = UNCOMPRESSED_BATCH_BYTES_MAX,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of the batch with a timestamp of at least `target`."""
    if header.is_log_append_time:
        return _first_stamped(view, position, header, bytes_max) if header.max_timestamp >= target else None
    return _codec.first_from(
        open_records(view, position, header, bytes_max=bytes_max),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        target,
    )


def latest(
    view: Bytes, position: int, header: BatchHeader, *, bytes_max: int = UNCOMPRESSED_BATCH_BYTES_MAX
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of the batch that has its largest timestamp."""
    if header.is_log_append_time:
        return _first_stamped(view, position, header, bytes_max)
    return _codec.latest(
        open_records(view, position, header, bytes_max=bytes_max),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
    )


def _first_stamped(view: Bytes, position: int, header: BatchHeader, bytes_max: int) -> tuple[int, int] | None:
    """The first record of a batch that the broker has stamped; compaction may have taken some, or all."""
    if header.record_count > header.last_offset_delta:
        return header.base_offset, header.max_timestamp
    records = open_records(view, position, header, bytes_max=bytes_max)
    keys = _codec.decode_keys(records, header.record_count, header.base_offset)
    return (keys[0][0], header.max_timestamp) if keys else None


def validate_records(
    view: Bytes,
    position: int,
    header: BatchHeader,
    *,
    keys_required: bool,
    bytes_max: int = UNCOMPRESSED_BATCH_BYTES_MAX,
) -> int:
    """Checks every record of a batch from a producer; gives the largest timestamp it found."""
    records = open_records(view, position, header, bytes_max=bytes_max)
    return _codec.validate(records, header.record_count, header.base_timestamp, keys_required)


def append_time(header: BatchHeader) -> int:
    """The broker's timestamp, which goes for all records of the batch; NO_TIMESTAMP if each has its own."""
    return header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
