"""Record batches built the plain way, for tests that judge storage without trusting the code they judge."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import crc32c

from headrace.records.compression import compress, decompress

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def unvarint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass(slots=True)
class Row:
    timestamp: int
    key: bytes | None
    value: bytes | None
    offset: int = 0


@dataclass(slots=True)
class Batch:
    """A batch as a producer sends it; `stored` says how it must look in the log."""

    rows: Sequence[Row]
    codec: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = 0
    _records: bytes = field(default=b"", repr=False)

    def records(self) -> bytes:
        if not self._records:
            first = self.rows[0].timestamp
            out = bytearray()
            for delta, row in enumerate(self.rows):
                body = (
                    b"\0"
                    + varint(row.timestamp - first)
                    + varint(delta)
                    + sized(row.key)
                    + sized(row.value)
                    + varint(0)
                )
                out += varint(len(body)) + body
            self._records = compress(self.codec, bytes(out))
        return self._records

    def stored(self, base_offset: int, leader_epoch: int) -> bytes:
        records = self.records()
        stamps = [row.timestamp for row in self.rows]
        covered = struct.pack(
            ">hiqqqhii",
            self.attributes | self.codec,
            len(self.rows) - 1,
            stamps[0],
            max(stamps),
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.rows),
        )
        covered += records
        head = struct.pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc32c.crc32c(covered))
        return head + covered

    def sent(self) -> memoryview:
        """The bytes as they come from a client, in a buffer the broker may write to."""
        return memoryview(bytearray(self.stored(0, -1)))


def marker(producer_id: int, producer_epoch: int, timestamp: int, kind: int) -> Batch:
    """The control batch that ends a transaction."""
    row = Row(timestamp, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return Batch([row], 0, producer_id, producer_epoch, -1, TRANSACTIONAL | CONTROL)


def split(data: bytes) -> list[bytes]:
    """The batches in a row of bytes; asserts that they are whole and that each checksum is right."""
    batches = []
    at = 0
    while at < len(data):
        assert len(data) - at >= 61, f"{len(data) - at} bytes after the last whole batch"
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        batch = data[at : at + size]
        assert len(batch) == size, "the last batch is cut"
        assert crc32c.crc32c(batch[21:]) == struct.unpack_from(">I", batch, 17)[0], "checksum"
        batches.append(batch)
        at += size
    return batches


def rows_of(batch: bytes) -> list[Row]:
    """The records of one stored batch, with their offsets."""
    base, _, _, _, _, attributes, _, first, _, _, _, _, count = HEADER.unpack_from(batch)
    data = decompress(attributes & 7, batch[61:])
    rows, at = [], 0
    for _ in range(count):
        size, at = unvarint(data, at)
        end = at + size
        stamp, at = unvarint(data, at + 1)
        delta, at = unvarint(data, at)
        parts: list[bytes | None] = []
        for _ in range(2):
            length, at = unvarint(data, at)
            parts.append(None if length < 0 else data[at : at + length])
            at += max(length, 0)
        rows.append(Row(first + stamp, parts[0], parts[1], base + delta))
        at = end
    assert at == len(data)
    return rows
