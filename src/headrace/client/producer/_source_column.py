# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Columns of a table that records are made from, in Arrow's layout: no Python object per row.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. All offsets
are checked when a column is made, because nobody checks them afterwards.
"""

from collections.abc import Sequence

COMPILED = not __file__.endswith(".py")


class Column:
    """Byte strings: row i lies from offsets[i] to offsets[i + 1]; null where its bit is 0.

    The data may be a part of a larger buffer, from `base` on, and the first bit may be one within a byte.
    Invariant: the offsets never fall, and the last one lies within the data.
    """

    __slots__ = ("base", "data", "first_bit", "offsets", "row_count", "validity")

    def __init__(
        self,
        row_count: int,
        offsets: "Sequence[int]",
        data: bytes,
        base: int = 0,
        validity: bytes | None = None,
        first_bit: int = 0,
    ) -> None:
        if row_count < 0 or len(offsets) <= row_count:
            raise ValueError(f"{len(offsets)} offsets for {row_count} rows")
        if validity is not None and (first_bit < 0 or len(validity) * 8 < first_bit + row_count):
            raise ValueError(f"{len(validity) * 8} bits for {row_count} rows")
        self.row_count = row_count
        self.offsets = offsets
        self.data = data
        self.base = base
        self.validity = validity
        self.first_bit = first_bit
        self.check()

    def check(self) -> None:
        bound = self.base
        for row in range(self.row_count + 1):
            place = self.offsets[row]
            if place < bound:
                raise ValueError("the offsets fall")
            bound = place
        if bound - self.base > len(self.data):
            raise ValueError(f"the offsets reach to {bound - self.base} of {len(self.data)} bytes")

    def start(self, row: int) -> int:
        return self.offsets[row] - self.base

    def is_valid(self, row: int) -> bool:
        if self.validity is None:
            return True
        bit = self.first_bit + row
        return self.validity[bit >> 3] >> (bit & 7) & 1 != 0


def encoded_headers(row_count: int, places: "Sequence[int]", names: Column, values: Column) -> Column:
    """The headers of each row as a record ends with them.

    Row i has those from places[i] to places[i + 1], counted from places[0]; names are never null.
    """
    if row_count < 0 or len(places) <= row_count:
        raise ValueError(f"{len(places)} places for {row_count} rows")
    bounds = places
    base = bounds[0]
    bound = base
    for row in range(row_count + 1):
        if bounds[row] < bound:
            raise ValueError("the places fall")
        bound = bounds[row]
    if bound - base > names.row_count or bound - base > values.row_count:
        raise ValueError(f"{names.row_count} headers: the rows have {bound - base}")
    total = 0
    for row in range(row_count):
        total += _varint_bytes(bounds[row + 1] - bounds[row])
        for place in range(bounds[row] - base, bounds[row + 1] - base):
            if not names.is_valid(place):
                raise ValueError("a header has no name")
            total += _text_bytes(names, place) + _text_bytes(values, place)
    encoded = bytearray(total)
    target = encoded
    offsets = memoryview(bytearray(8 * (row_count + 1))).cast("q")
    ends = offsets
    at = 0
    for row in range(row_count):
        at = _put_varint(target, at, bounds[row + 1] - bounds[row])
        for place in range(bounds[row] - base, bounds[row + 1] - base):
            at = _put_text(target, at, names, place)
            at = _put_text(target, at, values, place)
        ends[row + 1] = at
    return Column(row_count, offsets, bytes(encoded))


def _text_bytes(column: Column, row: int) -> int:
    """How long a row is with its length before it."""
    if not column.is_valid(row):
        return 1  # −1 as its length
    length = column.start(row + 1) - column.start(row)
    return _varint_bytes(length) + length


def _put_text(target: bytearray, position: int, column: Column, row: int) -> int:
    if not column.is_valid(row):
        return _put_varint(target, position, -1)
    start = column.start(row)
    length = column.start(row + 1) - start
    position = _put_varint(target, position, length)
    data = column.data
    source = data
    if COMPILED:
        for step in range(length):  # becomes a memcpy
            target[position + step] = source[start + step]
    else:
        target[position : position + length] = source[start : start + length]
    return position + length


# The varints of _batch.py and _codec.py again: the C compiler makes them part of the loops that call them,
# and cannot do so with functions of another module.


def _varint_bytes(value: int) -> int:
    """How long `value` is as a zigzag varint."""
    rest = value  # unsigned from here on, where it is compiled
    rest = (rest << 1) ^ (value >> 63)
    length = 1
    while rest >= 0x80:
        rest >>= 7
        length += 1
    return length


def _put_varint(target: bytearray, position: int, value: int) -> int:
    """Writes a zigzag varint; returns the position after it."""
    rest = value
    rest = (rest << 1) ^ (value >> 63)
    while rest >= 0x80:
        target[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1
