"""A 64-bit hash of each row of an Arrow table, for the proofs in the files of lake tables.

The hash depends on the values and the names of the columns, not on how they are stored: a column that is null
counts as one that is not there, and an int32 as the same number in an int64. So the hash of a row stays the
same when the table gets more or wider columns, and when files are written again. It finds damage and
mistakes; it does not resist somebody who wants two rows to have one hash.

    hash(row)   = mix(sum over columns of mix(hash(value) + seed(name)))
    hash(bytes) = mix(length + sum of number * R**position), of numbers of 8 bytes

All sums are modulo 2**64. numpy computes them, whole columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Hashes = Any  # np.ndarray of uint64

_MASK = (1 << 64) - 1
_R = 0x9E3779B97F4A7C15  # odd, so that no position loses a bit
# Numbers that are hashed at a time: the arrays for them stay in a core's own cache.
_PIECE = 1 << 13
_STEP = pow(_R, _PIECE, 1 << 64)


def row_hashes(table: pa.Table) -> Hashes:
    """Return the hash of each row."""
    parts = [_struct_hashes(batch.schema, batch.columns, batch.num_rows) for batch in table.to_batches()]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def added_up(hashes: Hashes) -> int:
    return int(np.add.reduce(hashes, dtype=np.uint64)) if len(hashes) else 0


def _struct_hashes(fields: Any, columns: list[pa.Array], rows: int) -> Hashes:
    total: Any = np.zeros(rows, np.uint64)
    for field, column in zip(fields, columns):
        if column.null_count == len(column):
            continue
        one = _mix(_value_hashes(column) + _seed(field.name))
        if column.null_count:
            one[_is_null(column)] = 0
        total += one
    return _mix(total)


def _value_hashes(column: pa.Array) -> Hashes:
    """Return a number for each value; what a null gets has no meaning."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _value_hashes(column.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _bytes_hashes(column, np.int32)
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _bytes_hashes(column, np.int64)
    if pa.types.is_struct(kind):
        return _struct_hashes(kind, column.flatten(), len(column))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _list_hashes(column)
    if pa.types.is_floating(kind):
        numbers = _filled(column.cast(pa.float64()), 0.0)
        numbers[np.isnan(numbers)] = np.nan  # there are many ways to write it
        return _mix(numbers.view(np.uint64).copy())
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_time(kind):
        column = column.cast(pa.time64("us")).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return _bytes_hashes(column.cast(pa.string()), np.int32)  # decimals, and what may come
    if column.type == pa.uint64():
        return _mix(_filled(column, 0).copy())
    return _mix(_filled(column.cast(pa.int64()), 0).view(np.uint64).copy())


def _filled(column: pa.Array, null: object) -> Any:
    filled = column.fill_null(null) if column.null_count else column
    numbers = filled.to_numpy(zero_copy_only=False)
    return numbers if numbers.flags.writeable else numbers.copy()


def _is_null(column: pa.Array) -> Any:
    return pc.is_null(column).to_numpy(zero_copy_only=False)


def _bytes_hashes(column: pa.Array, places_type: Any) -> Hashes:
    """Byte strings are hashed as numbers of 8 bytes, little-endian, the last one filled up with zeros."""
    rows = len(column)
    _, places_buffer, buffer = column.buffers()
    width = np.dtype(places_type).itemsize
    places = np.frombuffer(places_buffer, places_type, rows + 1, column.offset * width).astype(np.int64)
    data = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(0, np.uint8)
    counts = np.diff(places) + 7 >> 3
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    sums: Any = np.empty(rows, np.uint64)
    for first, last in _pieces(ends):
        piece = data[int(places[first]) : int(places[last])]
        inside = ends[first : last + 1] - ends[first]
        words = _words(piece, places[first : last + 1] - places[first], counts[first:last], inside)
        sums[first:last] = _sums(words, inside)
    return _mix(sums + np.diff(places).view(np.uint64))


def _words(piece: Any, places: Any, counts: Any, ends: Any) -> Hashes:
    """Return all rows of a piece as numbers of 8 bytes; row i has `counts[i]` of them."""
    padded: Any = np.zeros(len(piece) + 8, np.uint8)
    padded[: len(piece)] = piece
    # one number for every position in the piece, aligned or not
    everywhere = np.ndarray(len(piece) + 1, "<u8", padded.data, strides=(1,))
    words = everywhere[np.repeat(places[:-1] - 8 * ends[:-1], counts) + 8 * np.arange(ends[-1])]
    rest = np.diff(places) & 7
    is_short = rest > 0
    words[ends[1:][is_short] - 1] &= (np.uint64(1) << (8 * rest[is_short]).astype(np.uint64)) - np.uint64(1)
    return words


def _list_hashes(column: pa.Array) -> Hashes:
    """Return the hash of the elements' hashes; a null element counts by its position only."""
    rows = len(column)
    kind = np.int64 if pa.types.is_large_list(column.type) else np.int32
    buffer = column.buffers()[1]
    places = np.frombuffer(buffer, kind, rows + 1, column.offset * np.dtype(kind).itemsize).astype(np.int64)
    first, last = int(places[0]), int(places[-1])
    if pa.types.is_map(column.type):
        pairs = [column.keys.slice(first, last - first), column.items.slice(first, last - first)]
        inner = pa.StructArray.from_arrays(pairs, names=["key", "value"])
    else:
        inner = column.values.slice(first, last - first)
    words = _value_hashes(inner)
    if inner.null_count:
        words[_is_null(inner)] = 0
    return _fold(words, places - first)


def _fold(words: Hashes, places: Any) -> Hashes:
    """Return for each row i the hash of the numbers words[places[i] : places[i + 1]], and of how many."""
    sums: Any = np.empty(len(places) - 1, np.uint64)
    for first, last in _pieces(places):
        begin = int(places[first])
        sums[first:last] = _sums(words[begin : int(places[last])], places[first : last + 1] - begin)
    return _mix(sums + np.diff(places).view(np.uint64))


def _pieces(places: Any) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of at most _PIECE numbers in all, or of a single row."""
    first, rows = 0, len(places) - 1
    while first < rows:
        last = int(np.searchsorted(places, places[first] + _PIECE, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _sums(words: Hashes, ends: Any) -> Hashes:
    """Return for each row i the sum of word * R**position over words[ends[i] : ends[i + 1]]."""
    if len(words) > _PIECE:  # a single long row
        return np.array([_long_sum(words)], np.uint64)
    starts, counts = ends[:-1], np.diff(ends)
    sums: Any = np.zeros(len(starts), np.uint64)
    is_filled = counts > 0
    if len(words):
        terms = words * _powers()[np.arange(len(words)) - np.repeat(starts, counts)]
        sums[is_filled] = np.add.reduceat(terms, starts[is_filled])
    return sums


def _long_sum(words: Hashes) -> int:
    total, factor = 0, 1
    for begin in range(0, len(words), _PIECE):
        piece = words[begin : begin + _PIECE]
        total += factor * int(np.add.reduce(piece * _powers()[: len(piece)]))
        factor = factor * _STEP & _MASK
    return total & _MASK


@cache
def _powers() -> Hashes:
    """Return R**i for all positions in a piece."""
    numbers: Any = np.full(_PIECE, _R, np.uint64)
    numbers[0] = 1
    return np.multiply.accumulate(numbers)


@cache
def _seed(name: str) -> Any:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big"))


def _mix(numbers: Any) -> Any:
    """Spread each number over all 64 bits, in place: the finalizer of splitmix64."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)
    return numbers
