"""Fetched records as a pyarrow table; their buffers are handed over as they are, nothing is copied.

Needs pyarrow, the `arrow` extra.
"""

from array import array
from functools import cache, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from headrace.records._columns import ByteColumn, Columns
from headrace.records._messages import TimestampType

if TYPE_CHECKING:
    import pyarrow

_TYPES = tuple(kind.name.lower() for kind in TimestampType)


def table_of(columns: Columns) -> "pyarrow.Table":
    """One row per record: topic, partition, offset, timestamp, timestamp_type, key, value and headers.

    `timestamp` is in milliseconds, UTC, and null where there is none; `headers` is a list of (key, value).
    Topics and timestamp types are dictionaries: a name is there once, and rows refer to it.
    """
    import pyarrow as pa

    rows = columns.row_count
    timestamps = _numbers(pa.timestamp("ms", "UTC"), columns.timestamps, rows)
    if columns.untimed_count:
        timestamps = _without_negatives(timestamps)
    found = {
        "topic": _dictionary(_numbers(pa.int32(), columns.topic_numbers, rows), *columns.topics),
        "partition": _numbers(pa.int32(), columns.partitions, rows),
        "offset": _numbers(pa.int64(), columns.offsets, rows),
        "timestamp": timestamps,
        "timestamp_type": _dictionary(_numbers(pa.int8(), columns.timestamp_types, rows), *_TYPES),
        "key": _binary(columns.keys, rows),
        "value": _binary(columns.values, rows),
        "headers": _headers(columns),
    }
    return pa.Table.from_arrays(list(found.values()), list(found))


def table_below(columns: Columns, end_offset: int) -> "pyarrow.Table":
    """As `table_of`; of records of one partition, in order, those with offsets below `end_offset`."""
    table = table_of(columns)
    if columns.row_count and columns.offsets[columns.row_count - 1] >= end_offset:
        return table.slice(0, _count_below(columns, end_offset))
    return table


def _count_below(columns: Columns, end_offset: int) -> int:
    low, high = 0, columns.row_count
    offsets = columns.offsets
    while low < high:
        middle = (low + high) // 2
        if offsets[middle] < end_offset:
            low = middle + 1
        else:
            high = middle
    return low


def _part(column: object, size: int) -> "pyarrow.Buffer":
    """The first bytes of a column, which may have room for more."""
    import pyarrow as pa

    return pa.py_buffer(column).slice(0, size)


def _numbers(kind: "pyarrow.DataType", column: object, rows: int) -> "pyarrow.Array":
    import pyarrow as pa

    return pa.Array.from_buffers(kind, rows, [None, _part(column, rows * kind.bit_width // 8)], 0)


def _dictionary(numbers: "pyarrow.Array", *names: str) -> "pyarrow.DictionaryArray":
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(numbers, _names(*names), safe=False)


def _without_negatives(times: "pyarrow.Array") -> "pyarrow.Array":
    """Null where a record has no timestamp."""
    import pyarrow as pa
    from pyarrow import compute

    return compute.if_else(compute.less(times.cast(pa.int64()), 0), pa.scalar(None, times.type), times)


def _binary(column: ByteColumn, rows: int) -> "pyarrow.Array":
    import pyarrow as pa

    validity = _part(column.bits, (rows + 7) // 8) if column.null_count else None
    buffers = [validity, _part(column.places, 4 * (rows + 1)), _part(column.data, column.used)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, column.null_count)


def _headers(columns: Columns) -> "pyarrow.ListArray":
    import pyarrow as pa

    pairs = _pairs(columns) if columns.header_count else _no_pairs()
    kind = pa.list_(pa.field("item", pairs.type, nullable=False))
    places = _part(columns.header_places, 4 * (columns.row_count + 1))
    return pa.Array.from_buffers(kind, columns.row_count, [None, places], 0, children=[pairs])


def _pairs(columns: Columns) -> "pyarrow.StructArray":
    """All headers of all records, as (key, value)."""
    import pyarrow as pa

    keys = _binary(columns.header_keys, columns.header_count)
    try:
        keys = keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8, and Arrow has no other strings
        keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    values = _binary(columns.header_values, columns.header_count)
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    return pa.StructArray.from_arrays([keys, values], fields=fields)


@cache
def _no_pairs() -> "pyarrow.StructArray":
    return _pairs(Columns())


@lru_cache(maxsize=64)
def _names(*names: str) -> "pyarrow.StringArray":
    """Kept, since most tables are of the same topics."""
    import pyarrow as pa

    # pyarrow.array would import pandas first, where it is installed: most of a second
    encoded = [name.encode() for name in names]
    places = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(names), pa.py_buffer(places), pa.py_buffer(b"".join(encoded)))
