"""Record batches that a producer must not send, each with the error code that answers it.

All are of one record, `good`, with one thing wrong; what the checksum covers is made before it, so that each
batch is refused for the fault it is named after.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import crc32c

from harness.batches import sized, varint
from headrace.protocol.errors import ErrorCode

CONTROL, TRANSACTIONAL = 0x20, 0x10
ZSTD = 4


@dataclass(slots=True)
class Batch:
    """The fields of a batch's header; None is whatever is right."""

    records: bytes
    count: int = 1
    base_offset: int = 0
    length: int | None = None
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    def encoded(self) -> bytes:
        delta = self.count - 1 if self.last_offset_delta is None else self.last_offset_delta
        covered = struct.pack(
            ">hiqqqhii",
            self.attributes,
            delta,
            self.timestamp,
            self.timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )
        covered += self.records
        crc = crc32c.crc32c(covered) if self.crc is None else self.crc
        length = len(covered) + 9 if self.length is None else self.length
        return struct.pack(">qiibI", self.base_offset, length, -1, self.magic, crc) + covered


def record(
    value: bytes = b"good", *, offset_delta: int = 0, headers: bytes = b"\0", length: int | None = None
) -> bytes:
    """One record; `headers` is their count and all that follows."""
    body = b"\0" + varint(0) + varint(offset_delta) + sized(None) + sized(value) + headers
    return varint(len(body) if length is None else length) + body


def good() -> bytes:
    return Batch(record()).encoded()


def many_headers(count: int) -> bytes:
    """That many real headers, each with an empty key and no value."""
    return varint(count) + (varint(0) + varint(-1)) * count


HUGE = 2**31 - 1

# What every topic refuses, from the header and the checksum alone.
REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "nothing at all": (b"", ErrorCode.INVALID_RECORD),
    "half a header": (good()[:40], ErrorCode.INVALID_RECORD),
    "bad checksum": (Batch(record(), crc=1).encoded(), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (Batch(record(), magic=0).encoded(), ErrorCode.INVALID_RECORD),
    "magic 1": (Batch(record(), magic=1).encoded(), ErrorCode.INVALID_RECORD),
    "magic 3": (Batch(record(), magic=3).encoded(), ErrorCode.INVALID_RECORD),
    "magic -1": (Batch(record(), magic=-1).encoded(), ErrorCode.INVALID_RECORD),
    "length one too long": (Batch(record(), length=len(good()) - 11).encoded(), ErrorCode.CORRUPT_MESSAGE),
    "length one too short": (Batch(record(), length=len(good()) - 13).encoded(), ErrorCode.CORRUPT_MESSAGE),
    "length 0": (Batch(record(), length=0).encoded(), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (Batch(record(), length=-1).encoded(), ErrorCode.CORRUPT_MESSAGE),
    "length 2^31-1": (Batch(record(), length=HUGE).encoded(), ErrorCode.CORRUPT_MESSAGE),
    "last offset delta 5 of 1": (Batch(record(), last_offset_delta=5).encoded(), ErrorCode.INVALID_RECORD),
    "last offset delta -1": (Batch(record(), last_offset_delta=-1).encoded(), ErrorCode.INVALID_RECORD),
    "count 0": (Batch(record(), count=0, last_offset_delta=0).encoded(), ErrorCode.INVALID_RECORD),
    "count negative": (Batch(record(), count=-1, last_offset_delta=0).encoded(), ErrorCode.INVALID_RECORD),
    "count 2^31-1": (Batch(record(), count=HUGE).encoded(), ErrorCode.INVALID_RECORD),
    "count 2^31-1, compressed": (
        Batch(record(), count=HUGE, attributes=1).encoded(),
        ErrorCode.INVALID_RECORD,
    ),
    "control batch": (Batch(record(), attributes=CONTROL).encoded(), ErrorCode.INVALID_RECORD),
    "transactional, of nobody": (
        Batch(record(), attributes=TRANSACTIONAL).encoded(),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "producer id with epoch -1": (
        Batch(record(), producer_id=9, producer_epoch=-1, base_sequence=0).encoded(),
        ErrorCode.INVALID_RECORD,
    ),
    "producer id with sequence -1": (
        Batch(record(), producer_id=9, producer_epoch=0, base_sequence=-1).encoded(),
        ErrorCode.INVALID_RECORD,
    ),
    "producer id -2": (Batch(record(), producer_id=-2).encoded(), ErrorCode.INVALID_RECORD),
    "codec 5": (Batch(record(), attributes=5).encoded(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (Batch(record(), attributes=7).encoded(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "two batches": (good() + good(), ErrorCode.INVALID_RECORD),
    "bytes behind the batch": (good() + b"\0" * 5, ErrorCode.CORRUPT_MESSAGE),
    "larger than the topic takes": (
        Batch(record(bytes(1 << 20))).encoded(),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "timestamp of the year 292 million": (
        Batch(record(), timestamp=2**63 - 1).encoded(),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}

# What only a topic that opens its batches can see.
REFUSED_WHEN_OPENED: dict[str, bytes] = {
    "garbage as gzip": Batch(b"\x1f\x8b" + b"rubbish" * 9, attributes=1).encoded(),
    "garbage as snappy": Batch(b"rubbish" * 9, attributes=2).encoded(),
    "garbage as lz4": Batch(b"\x04\x22\x4d\x18" + b"rubbish" * 9, attributes=3).encoded(),
    "garbage as zstd": Batch(b"\x28\xb5\x2f\xfd" + b"rubbish" * 9, attributes=4).encoded(),
    "plain records as gzip": Batch(record(), attributes=1).encoded(),
    "gzip as plain records": Batch(b"\x1f\x8b\x08" + bytes(60)).encoded(),
    "fewer records than counted": Batch(record(bytes(30)), count=3).encoded(),
    "more records than counted": Batch(record() * 3, count=1).encoded(),
    "record longer than the batch": Batch(record(length=100)).encoded(),
    "record of length -1": Batch(record(length=-1)).encoded(),
    "record of length 2^31-1": Batch(record(length=HUGE)).encoded(),
    "offset delta -1": Batch(record(offset_delta=-1)).encoded(),
    "offset delta 5 of 1": Batch(record(offset_delta=5)).encoded(),
    "varint of eleven bytes": Batch(b"\xff" * 11 + bytes(20)).encoded(),
    "headers counted, none there": Batch(record(headers=varint(10**6))).encoded(),
    "headers -1": Batch(record(headers=varint(-1))).encoded(),
    "header key of length -1": Batch(record(headers=varint(1) + varint(-1) + varint(-1))).encoded(),
    "header key of length 2^31-1": Batch(record(headers=varint(1) + varint(HUGE))).encoded(),
}
