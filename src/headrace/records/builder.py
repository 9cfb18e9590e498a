"""Builder of whole batches from records, for the client, the metadata log, coordinators and tests.

What a batch does not say is left at Kafka's "none" (−1). Offsets run from the base offset without gaps,
unless rows with offsets of their own are given.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from headrace.records import _codec
from headrace.records._codec import Headers, Row
from headrace.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from headrace.records.checksum import crc32c
from headrace.records.compression import Codec, compress

Record = tuple[int, bytes | None, bytes | None, Headers]  # timestamp in ms, key, value, headers

# The types of a control record, in its key.
ABORT: Final = 0
COMMIT: Final = 1
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

_CONTROL_KEY: Final = Struct(">hh")  # version 0, type
_END_MARKER: Final = Struct(">hi")  # version 0, coordinator epoch
_CRC: Final = Struct(">I")


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time: int = NO_TIMESTAMP,
) -> bytes:
    """One batch of `records`, (timestamp, key, value, headers) each; at least one.

    An `append_time` of 0 or more makes it a LogAppendTime batch with that timestamp for all of them.
    """
    base_timestamp = records[0][0]
    return _assemble(
        _codec.encode(records, base_timestamp),
        count=len(records),
        base_offset=base_offset,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record[0] for record in records),
        leader_epoch=leader_epoch,
        codec=codec,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        append_time=append_time,
    )


def batch_of(
    encoded: bytes,
    count: int,
    timestamp: int,
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytes:
    """One batch of records that are encoded already, all of them with this timestamp."""
    return _assemble(
        encoded,
        count=count,
        base_offset=0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        leader_epoch=-1,
        codec=Codec.NONE,
        level=None,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=transactional,
        control=False,
        append_time=NO_TIMESTAMP,
    )


def rebuild_batch(
    rows: Sequence[Row],
    *,
    base_offset: int,
    last_offset_delta: int,
    leader_epoch: int,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time: int = NO_TIMESTAMP,
    delete_horizon: int = NO_TIMESTAMP,
) -> bytes:
    """One batch of rows that keep their offsets, as a cleaner writes it; gaps are allowed, no rows too.

    The offset range is given, not derived: it outlives the records, for sequences are counted by it. A
    `delete_horizon` of 0 or more, when tombstones in it may go, replaces the base timestamp.
    """
    base_timestamp = rows[0][1] if rows else NO_TIMESTAMP
    if delete_horizon >= 0:
        base_timestamp = delete_horizon
    return _assemble(
        _codec.encode_at(rows, base_offset, base_timestamp),
        count=len(rows),
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max((row[1] for row in rows), default=NO_TIMESTAMP),
        leader_epoch=leader_epoch,
        codec=codec,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        append_time=append_time,
        has_delete_horizon=delete_horizon >= 0,
    )


def control_batch(
    kind: int,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch with one control record of that type: it takes one offset and clients never see it."""
    return build_batch(
        [(timestamp, _CONTROL_KEY.pack(0, kind), value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )


def end_marker(
    *,
    committed: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition."""
    return control_batch(
        COMMIT if committed else ABORT,
        _END_MARKER.pack(0, coordinator_epoch),
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def control_kind(key: bytes | None) -> int:
    """The type in a control record's key; −1 when it is none that we know how to read."""
    if key is None or len(key) < _CONTROL_KEY.size:
        return -1
    version, kind = _CONTROL_KEY.unpack_from(key)
    return int(kind) if version >= 0 else -1


def _assemble(
    encoded: bytes,
    *,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    leader_epoch: int,
    codec: int,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    control: bool,
    append_time: int,
    has_delete_horizon: bool = False,
) -> bytes:
    attributes = int(codec)
    if has_delete_horizon:
        attributes |= DELETE_HORIZON
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if append_time >= 0:
        attributes |= LOG_APPEND_TIME
        max_timestamp = append_time
    if codec:
        encoded = compress(codec, encoded, level=level)
    size = HEADER_BYTES + len(encoded)
    batch = bytearray(size)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        size - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch[HEADER_BYTES:] = encoded
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)
