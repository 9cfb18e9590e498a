"""Header of a record batch (message format 2): reading, checking, and changing it in place.

Nothing here opens the records of a batch: a batch stays opaque on its way through the broker. What is
promised of a checked batch: whole, checksum right, and a record count that its bytes can hold.

    0 baseOffset i64 · 8 length i32 · 12 leaderEpoch i32 · 16 magic i8 · 17 crc u32 · 21 attributes i16
    23 lastOffsetDelta i32 · 27 baseTimestamp i64 · 35 maxTimestamp i64 · 43 producerId i64
    51 producerEpoch i16 · 53 baseSequence i32 · 57 count i32 · 61 records

The length counts what follows it; the CRC-32C covers everything from the attributes to the end.
"""

from struct import Struct
from typing import Final, NamedTuple

from headrace.base.limits import COMPRESSION_RATIO_MAX, UNCOMPRESSED_BATCH_BYTES_MAX
from headrace.records.checksum import crc32c
from headrace.records.compression import uncompressed_bytes_limit
from headrace.records.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    UnsupportedCodec,
    UnsupportedMagic,
)

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size  # 61

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # the checksum covers everything from here on
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57
RECORDS_AT: Final = HEADER_BYTES

LENGTH_OVERHEAD: Final = 12  # base offset and length itself are not counted by the length field
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_UNUSUAL: Final = CODEC_MASK | CONTROL  # what asks for more than the common checks

NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MODULUS: Final = 1 << 31  # sequences wrap from the largest int32 to 0

# Length, attributes, both deltas, key length, value length and header count take a byte each at least.
RECORD_BYTES_MIN: Final = 7

_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_LENGTH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")

Bytes = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The 61 bytes as they stand; a tuple in wire order, so that it costs the broker next to nothing."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included: where the next one begins."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, NO_SEQUENCE without a producer; wraps after the largest int32."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def is_end_mark(self) -> bool:
        """Without records and a producer: compaction puts it where a segment would end too early."""
        return not self.record_count and not self.has_producer and not self.is_control


# Indexes of fields in a BatchHeader, for what is done with every batch: header[ATTRIBUTES_FIELD] is quicker
# than header.attributes.
ATTRIBUTES_FIELD: Final = 5
MAX_TIMESTAMP_FIELD: Final = 8

_unpack = HEADER.unpack_from
_new = tuple.__new__


def read_header(view: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked; struct.error when fewer than 61 bytes are left."""
    return _new(BatchHeader, _unpack(view, position))


def batch_size(view: Bytes, position: int = 0) -> int:
    """Bytes of the batch at `position` by its own account; needs its first 12 bytes only."""
    (length,) = _LENGTH.unpack_from(view, position + LENGTH_AT)
    return int(length) + LENGTH_OVERHEAD


def crc_of(view: Bytes, position: int = 0, size: int | None = None) -> int:
    """CRC-32C of the batch at `position`, computed; no byte is copied."""
    if size is None:
        size = batch_size(view, position)
    return crc32c(memoryview(view)[position + ATTRIBUTES_AT : position + size])


def check_crc(view: Bytes, position: int = 0) -> BatchHeader:
    """The header of a whole, intact batch at `position`, else CorruptBatch: for recovery and followers.

    Only what a broken disk or network can spoil is checked; whether a client may send such a batch is the
    question of check_batches.
    """
    left = len(view) - position
    if left < HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes are left, too few for a batch header of {HEADER_BYTES} bytes")
    header = read_header(view, position)
    size = header.length + LENGTH_OVERHEAD
    if not HEADER_BYTES <= size <= left:
        raise CorruptBatch(f"the batch has {size} bytes by its length, but only {left} are left")
    if header.magic != MAGIC:
        raise UnsupportedMagic(f"message format {header.magic} is not supported, only 2 is")
    if crc_of(view, position, size) != header.crc:
        raise CorruptBatch(f"checksum of the batch at offset {header.base_offset} is wrong")
    return header


def check_replicated(view: memoryview) -> list[BatchHeader]:
    """The headers of all batches in `view`, whole and intact: what a follower asks of its leader's bytes.

    Control batches and the gaps of compaction are in order here.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position < len(view):
        header = check_crc(view, position)
        headers.append(header)
        position += header.length + LENGTH_OVERHEAD
    return headers


def check_batches(view: memoryview, batch_bytes_max: int, *, with_crc: bool = True) -> list[BatchHeader]:
    """The headers of all batches in `view`, back to back and each of them what a client may send.

    The i-th batch begins where the sizes of those before it end. An empty view gives an empty list.
    """
    headers: list[BatchHeader] = []
    position = 0
    end = len(view)
    while position < end:
        if end - position < HEADER_BYTES:
            raise CorruptBatch(f"{end - position} bytes after the last batch")
        fields = _unpack(view, position)
        (
            _,
            length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            _,
            _,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ) = fields  # a bare tuple: taking a named one apart costs twice as much
        size = length + LENGTH_OVERHEAD
        if size < HEADER_BYTES or size > end - position:
            raise CorruptBatch(
                f"the batch has {size} bytes by its length, but only {end - position} are left"
            )
        if magic != MAGIC:
            raise UnsupportedMagic(f"message format {magic} is not supported, only 2 is")
        if size > batch_bytes_max:
            raise BatchTooLarge(f"the batch has {size} bytes, more than max.message.bytes={batch_bytes_max}")
        if with_crc and crc32c(view[position + ATTRIBUTES_AT : position + size]) != crc:
            raise CorruptBatch("the batch's checksum does not match its bytes")
        if count < 1 or last_offset_delta != count - 1:
            raise InvalidBatch(f"record count {count} with a last offset delta of {last_offset_delta}")
        header = _new(BatchHeader, fields)
        if count * RECORD_BYTES_MIN > size - HEADER_BYTES or attributes & _UNUSUAL:
            _check_unusual(header)
        if producer_id == NO_PRODUCER:
            if attributes & TRANSACTIONAL:
                raise InvalidBatch("a transactional batch without a producer id")
        elif producer_id < 0 or producer_epoch < 0 or base_sequence < 0:
            raise InvalidBatch(
                f"producer id {producer_id} with epoch {producer_epoch} and sequence {base_sequence}"
            )
        headers.append(header)
        position += size
    return headers


def check_produced(view: memoryview, batch_bytes_max: int) -> BatchHeader:
    """The header of the one batch that a client may send to a partition at a time."""
    return _only(check_batches(view, batch_bytes_max))


def check_produced_header(view: memoryview, batch_bytes_max: int) -> BatchHeader:
    """The same, except for the checksum: whoever reads all bytes anyway computes it on the way."""
    return _only(check_batches(view, batch_bytes_max, with_crc=False))


def check_own(view: memoryview) -> BatchHeader:
    """The same of a batch that the broker made itself: control batches are in order."""
    return _only(check_replicated(view))


def _only(headers: list[BatchHeader]) -> BatchHeader:
    if len(headers) != 1:
        raise InvalidBatch(f"the request has {len(headers)} batches for one partition, only 1 is allowed")
    return headers[0]


def _check_unusual(header: BatchHeader) -> None:
    """The rarer half of check_batches: compressed batches, control batches, impossible counts."""
    if header.is_control:
        raise InvalidBatch("clients may not write control batches")
    codec = header.codec
    records_bytes = header.size - HEADER_BYTES
    if codec > 4:
        raise UnsupportedCodec(f"compression codec {codec} does not exist")
    if codec:
        records_bytes = uncompressed_bytes_limit(
            records_bytes, bytes_max=UNCOMPRESSED_BATCH_BYTES_MAX, ratio_max=COMPRESSION_RATIO_MAX
        )
    if header.record_count * RECORD_BYTES_MIN > records_bytes:
        raise InvalidBatch(f"{header.record_count} records do not fit into {header.size} bytes")


def assign(view: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch its place in the log. Both fields lie outside the checksum."""
    _OFFSET.pack_into(view, position, base_offset)
    _EPOCH.pack_into(view, position + LEADER_EPOCH_AT, leader_epoch)


def assign_log_append_time(view: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Stamps the batch with the broker's clock (LogAppendTime) and renews the checksum.

    The records keep their own timestamps in the bytes; readers take maxTimestamp for all of them.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(view, position + ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(view, position + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(view, position + MAX_TIMESTAMP_AT, timestamp_ms)
    renew_crc(view, position)


def renew_crc(view: bytearray | memoryview, position: int) -> None:
    """Writes the checksum that the batch's bytes now have."""
    _CRC.pack_into(view, position + CRC_AT, crc_of(view, position))
