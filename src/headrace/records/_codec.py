# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The records of a batch, byte by byte; compiled, as the producer's accumulator beside it.

This file is plain Python and runs as such. Where a compiler is at hand, Cython builds it with the C types
that _codec.pxd beside it declares; the meaning is the same and tests hold both to it. What looks redundant
here (`buf = records`) is a pointer there, which is why nothing may index past `end`: every varint and every
length is checked against the bytes that are left before it is used, and CorruptRecords is raised otherwise.

A record: length, attributes, timestamp delta, offset delta, key length, key, value length, value, header
count, headers. All numbers but the attribute byte are zigzag varints; −1 as a length means null.
"""

from collections.abc import Sequence

from headrace.records.errors import CorruptRecords, InvalidBatch

_INT32_MAX = 0x7FFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INT64_MIN = -_INT64_MAX - 1

NO_NUMBER = "a varint is truncated or too long"

Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[int, int, bytes | None, bytes | None, Headers]  # offset, timestamp, key, value, headers
Record = tuple[int, bytes | None, bytes | None, Headers]  # timestamp, key, value, headers


def _read_varint(buf: bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """The zigzag varint at `position` and the position after it, which is -1 if there is none.

    It raises nothing itself, so that C need not ask after each number whether something was raised.
    """
    if end - position > 1 and buf[position] >= 0x80:  # the usual case, two bytes, without the loop
        byte = buf[position + 1]
        if byte < 0x80:
            value = (buf[position] & 0x7F) | (byte << 7)
            return (value >> 1) ^ -(value & 1), position + 2
    value = 0
    shift = 0
    while position < end:
        byte = buf[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                break  # a tenth byte has room for one bit
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift >= 7 * bytes_max:
            break
    return 0, -1


class Cursor:
    """Walks the records of one batch: after `advance` its fields describe the record it stands on.

    Invariant: position <= end, and each span [at, at + length) of a record lies inside its bytes.
    """

    __slots__ = (
        "base_timestamp",
        "buf",
        "delta_max",
        "delta_min",
        "end",
        "header_count",
        "header_key_at",
        "header_key_length",
        "header_value_at",
        "header_value_length",
        "headers_at",
        "key_at",
        "key_length",
        "offset_delta",
        "position",
        "records",
        "timestamp",
        "value_at",
        "value_length",
    )

    def __init__(self, records: bytes, count: int, base_timestamp: int) -> None:
        self.records = records  # keeps the bytes alive that buf points to
        self.buf = records
        self.begin(0, len(records), base_timestamp)
        # asked before anybody allocates by the count: no record is shorter than seven bytes
        if count < 0 or count > self.end // 7:
            raise CorruptRecords(f"{count} records do not fit into {self.end} bytes")
        self.timestamp = 0
        self.offset_delta = 0
        self.key_at = 0
        self.key_length = -1
        self.value_at = 0
        self.value_length = -1
        self.headers_at = 0
        self.header_count = 0
        self.header_key_at = 0
        self.header_key_length = 0
        self.header_value_at = 0
        self.header_value_length = -1

    def begin(self, position: int, end: int, base_timestamp: int) -> None:
        """Goes to the records of a batch that lie between these positions, which the caller has checked."""
        self.position = position
        self.end = end
        self.base_timestamp = base_timestamp
        # the deltas with which a timestamp stays an int64
        self.delta_max = _INT64_MAX - base_timestamp if base_timestamp > 0 else _INT64_MAX
        self.delta_min = _INT64_MIN - base_timestamp if base_timestamp < 0 else _INT64_MIN

    def advance(self) -> bool:
        """Steps to the next record and takes it apart."""
        buf = self.buf
        position = self.position
        end = self.end

        # One-byte varints are read in place, here and below: a call costs more than all the rest.
        if position >= end:
            raise CorruptRecords("fewer records than the batch counts")
        byte = buf[position]
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            number, position = _read_varint(buf, position, end, 5)
            if position < 0:
                raise CorruptRecords(NO_NUMBER)
        if number < 6 or number > end - position:
            raise CorruptRecords(f"a record of {number} bytes where {end - position} are left")
        end = position + number
        self.position = end
        position += 1  # the attributes, all unused

        byte = buf[position]
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            number, position = _read_varint(buf, position, end, 10)
            if position < 0:
                raise CorruptRecords(NO_NUMBER)
        if number > self.delta_max or number < self.delta_min:
            raise CorruptRecords(f"timestamp delta {number} overflows")
        self.timestamp = self.base_timestamp + number

        if position >= end:
            raise CorruptRecords("a record ends before its offset")
        byte = buf[position]
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            number, position = _read_varint(buf, position, end, 5)
            if position < 0:
                raise CorruptRecords(NO_NUMBER)
        if number < 0 or number > _INT32_MAX:
            raise CorruptRecords(f"offset delta {number}")
        self.offset_delta = number

        if position >= end:
            raise CorruptRecords("a record ends before its key")
        byte = buf[position]
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            number, position = _read_varint(buf, position, end, 5)
            if position < 0:
                raise CorruptRecords(NO_NUMBER)
        if number < -1 or number > end - position:
            raise CorruptRecords(f"a key of {number} bytes where {end - position} are left")
        self.key_at = position
        self.key_length = number
        if number > 0:
            position += number

        if position >= end:
            raise CorruptRecords("a record ends before its value")
        byte = buf[position]
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            number, position = _read_varint(buf, position, end, 5)
            if position < 0:
                raise CorruptRecords(NO_NUMBER)
        if number < -1 or number > end - position:
            raise CorruptRecords(f"a value of {number} bytes where {end - position} are left")
        self.value_at = position
        self.value_length = number
        if number > 0:
            position += number

        if position >= end:
            raise CorruptRecords("a record ends before its headers")
        byte = buf[position]
        if byte < 0x80:
            number = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            number, position = _read_varint(buf, position, end, 5)
            if position < 0:
                raise CorruptRecords(NO_NUMBER)
        self.headers_at = position
        self.header_count = number
        if number != 0:
            position = _skip_headers(buf, position, end, number)
        if position != end:
            raise CorruptRecords(f"{end - position} bytes are left in a record")
        return True

    def next_header(self) -> None:
        """Takes one of the record's headers apart; no more often than `header_count` says."""
        number, position = _read_varint(self.buf, self.headers_at, self.position, 5)
        if position < 0:
            raise CorruptRecords(NO_NUMBER)
        self.header_key_at = position
        self.header_key_length = number
        number, position = _read_varint(self.buf, position + number, self.position, 5)
        if position < 0:
            raise CorruptRecords(NO_NUMBER)
        self.header_value_at = position
        self.header_value_length = number
        self.headers_at = position + number if number > 0 else position

    def finish(self) -> None:
        """Nothing may follow the last record."""
        if self.position != self.end:
            raise CorruptRecords(f"{self.end - self.position} bytes after the last record")


def _skip_headers(buf: bytes, position: int, end: int, count: int) -> int:
    """The position after so many headers, each of them checked."""
    if count < 0 or count > (end - position) // 2:
        raise CorruptRecords(f"{count} headers do not fit into {end - position} bytes")
    for _ in range(count):
        number, position = _read_varint(buf, position, end, 5)
        if position < 0:
            raise CorruptRecords(NO_NUMBER)
        if number < 0 or number > end - position:
            raise CorruptRecords(f"a header key of {number} bytes where {end - position} are left")
        position += number
        number, position = _read_varint(buf, position, end, 5)
        if position < 0:
            raise CorruptRecords(NO_NUMBER)
        if number < -1 or number > end - position:
            raise CorruptRecords(f"a header value of {number} bytes where {end - position} are left")
        if number > 0:
            position += number
    return position


def decode_headers(records: bytes, position: int, count: int) -> Headers:
    """The headers that begin at `position`. Keys that are not UTF-8 survive a round trip."""
    buf = records
    end = len(records)
    if position < 0 or position > end or count < 0 or count > (end - position) // 2:
        raise CorruptRecords(f"{count} headers at {position} of {end} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        number, position = _read_varint(buf, position, end, 5)
        if position < 0:
            raise CorruptRecords(NO_NUMBER)
        if number < 0 or number > end - position:
            raise CorruptRecords(f"a header key of {number} bytes where {end - position} are left")
        key = records[position : position + number].decode("utf-8", "surrogateescape")
        position += number
        number, position = _read_varint(buf, position, end, 5)
        if position < 0:
            raise CorruptRecords(NO_NUMBER)
        if number < -1 or number > end - position:
            raise CorruptRecords(f"a header value of {number} bytes where {end - position} are left")
        if number < 0:
            headers.append((key, None))
        else:
            headers.append((key, buf[position : position + number]))
            position += number
    return tuple(headers)


def decode_rows(
    records: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int
) -> list[Row]:
    """All records as (offset, timestamp, key, value, headers); an `append_time` ≥ 0 goes for all."""
    check_base_offset(base_offset)
    cursor = Cursor(records, count, base_timestamp)
    buf = records
    rows: list[Row] = []
    headers: Headers
    no_headers: Headers = ()
    for _ in range(count):
        cursor.advance()
        at = cursor.key_at
        length = cursor.key_length
        key = buf[at : at + length] if length >= 0 else None
        at = cursor.value_at
        length = cursor.value_length
        value = buf[at : at + length] if length >= 0 else None
        if cursor.header_count:
            headers = decode_headers(records, cursor.headers_at, cursor.header_count)
        else:
            headers = no_headers
        timestamp = cursor.timestamp if append_time < 0 else append_time
        rows.append((base_offset + cursor.offset_delta, timestamp, key, value, headers))
    cursor.finish()
    return rows


def decode_keys(records: bytes, count: int, base_offset: int) -> list[tuple[int, bytes | None, bool]]:
    """All records as (offset, key, value is null): what the cleaner needs to know."""
    check_base_offset(base_offset)
    cursor = Cursor(records, count, 0)
    buf = records
    keys: list[tuple[int, bytes | None, bool]] = []
    for _ in range(count):
        cursor.advance()
        at = cursor.key_at
        length = cursor.key_length
        key = buf[at : at + length] if length >= 0 else None
        keys.append((base_offset + cursor.offset_delta, key, cursor.value_length < 0))
    cursor.finish()
    return keys


def first_from(
    records: bytes, count: int, base_offset: int, base_timestamp: int, target: int
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record whose own timestamp is at least `target`."""
    check_base_offset(base_offset)
    cursor = Cursor(records, count, base_timestamp)
    for _ in range(count):
        cursor.advance()
        if cursor.timestamp >= target:
            return base_offset + cursor.offset_delta, cursor.timestamp
    cursor.finish()
    return None


def latest(records: bytes, count: int, base_offset: int, base_timestamp: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that has the largest timestamp; None without records."""
    check_base_offset(base_offset)
    cursor = Cursor(records, count, base_timestamp)
    if count == 0:
        return None
    timestamp = _INT64_MIN
    offset_delta = 0
    for index in range(count):
        cursor.advance()
        if index == 0 or cursor.timestamp > timestamp:
            timestamp = cursor.timestamp
            offset_delta = cursor.offset_delta
    cursor.finish()
    return base_offset + offset_delta, timestamp


def validate(records: bytes, count: int, base_timestamp: int, keys_required: bool) -> int:
    """Checks every record as a producer must send it, and gives the largest timestamp (count ≥ 1).

    CorruptRecords when a record is malformed, InvalidBatch when the offsets are not 0, 1, 2 … or a key is
    missing that the topic requires.
    """
    cursor = Cursor(records, count, base_timestamp)
    timestamp = _INT64_MIN
    for index in range(count):
        cursor.advance()
        if cursor.offset_delta != index:
            raise InvalidBatch(f"record {index} has offset delta {cursor.offset_delta}")
        if keys_required and cursor.key_length < 0:
            raise InvalidBatch(f"record {index} has no key, and the topic is compacted")
        if cursor.timestamp > timestamp:
            timestamp = cursor.timestamp
    cursor.finish()
    return timestamp


def encode(rows: Sequence[Record], base_timestamp: int) -> bytes:
    """The records of a batch from (timestamp, key, value, headers), with offset deltas 0, 1, 2 …"""
    parts: list[bytes | bytearray] = []
    for offset_delta, (timestamp, key, value, headers) in enumerate(rows):
        _check_timestamp(timestamp, base_timestamp)
        _append(parts, timestamp - base_timestamp, offset_delta, key, value, headers)
    return b"".join(parts)


def encode_at(rows: Sequence[Row], base_offset: int, base_timestamp: int) -> bytes:
    """The records of a batch from what decode_rows gives, offsets kept: they may have gaps."""
    parts: list[bytes | bytearray] = []
    for offset, timestamp, key, value, headers in rows:
        if not 0 <= offset - base_offset <= _INT32_MAX:
            raise ValueError(f"offset {offset} is out of reach of base offset {base_offset}")
        _check_timestamp(timestamp, base_timestamp)
        _append(parts, timestamp - base_timestamp, offset - base_offset, key, value, headers)
    return b"".join(parts)


def _append(
    parts: list[bytes | bytearray],
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    scratch = bytearray(48)  # four varints of ten bytes at most, and the attributes
    target = scratch
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    # attributes, both deltas and the key length first; what precedes and follows them depends on their size
    target[0] = 0
    middle = _write_varint(target, 1, timestamp_delta)
    middle = _write_varint(target, middle, offset_delta)
    middle = _write_varint(target, middle, key_length)
    after = _write_varint(target, middle, value_length)
    head = target[:middle]
    value_head = target[middle:after]
    tail = encode_headers(headers) if headers else b"\x00"
    size = after + len(tail)
    if key_length > 0:
        size += key_length
    if value_length > 0:
        size += value_length
    if size > _INT32_MAX:
        raise ValueError(f"a record of {size} bytes")
    length = _write_varint(target, 0, size)
    parts.append(target[:length])
    parts.append(head)
    if key is not None:
        parts.append(key)
    parts.append(value_head)
    if value is not None:
        parts.append(value)
    parts.append(tail)


def encode_headers(headers: Headers) -> bytes:
    """The end of a record: how many headers, and each of them."""
    scratch = bytearray(16)
    target = scratch
    length = _write_varint(target, 0, len(headers))
    parts: list[bytes | bytearray] = [target[:length]]
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape")
        length = _write_varint(target, 0, len(name))
        parts.append(target[:length])
        parts.append(name)
        length = _write_varint(target, 0, -1 if value is None else len(value))
        parts.append(target[:length])
        if value is not None:
            parts.append(value)
    return b"".join(parts)


def _write_varint(target: bytearray, position: int, value: int) -> int:
    """Writes a zigzag varint of at most ten bytes and gives the position after it."""
    rest = value  # unsigned from here on, where it is compiled
    rest = (rest << 1) ^ (value >> 63)
    while rest >= 0x80:
        target[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1


def _check_timestamp(timestamp: int, base_timestamp: int) -> None:
    """Written timestamps are −1 (none) or more, so that a delta is always an int64."""
    if timestamp < -1 or base_timestamp < -1 or timestamp >= _INT64_MAX:
        raise ValueError(f"timestamp {timestamp} after base timestamp {base_timestamp}")


def check_base_offset(base_offset: int) -> None:
    """Offsets of a batch are int64 all through."""
    if base_offset < 0 or base_offset > _INT64_MAX - _INT32_MAX:
        raise CorruptRecords(f"base offset {base_offset}")
