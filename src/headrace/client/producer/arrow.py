"""A table's rows as records, column by column: no Python object is made per record.

Needs pyarrow, the `arrow` extra. Columns of text and of bytes go as they are; any other must be cast by
the caller, who knows how it is to be written. Headers are a list of (name, value) or a map, as
`Consumer.poll_arrow` gives them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import InvalidInput
from headrace.client.producer._source_column import Column, encoded_headers

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_SLICE = 65_536  # their bytes are copied once: a bound on that memory


class Slice(NamedTuple):
    """Some rows, as `Accumulator.append_columns` takes them."""

    row_count: int
    keys: Column | None
    values: Column
    timestamps: memoryview | None
    tails: Column | None = None
    partitions: memoryview | None = None

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""
        return sum(len(column.data) for column in (self.keys, self.values, self.tails) if column is not None)


def slices(
    table: "pyarrow.Table",
    *,
    value: str = "value",
    key: str | None = None,
    timestamp: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    rows_max: int = ROWS_PER_SLICE,
) -> Iterator[Slice]:
    """The rows in order; `value`, `key`, `timestamp`, `headers` and `partition` name columns."""
    for name in (value, key, timestamp, headers, partition):
        if name is not None and name not in table.column_names:
            raise InvalidInput(f"the table has no column {name!r}, only {', '.join(table.column_names)}")
    for batch in table.to_batches(max_chunksize=rows_max):
        yield Slice(
            batch.num_rows,
            None if key is None else _column(batch.column(key), key),
            _column(batch.column(value), value),
            None if timestamp is None else _timestamps(batch.column(timestamp), timestamp),
            None if headers is None else _headers(batch.column(headers), headers),
            None if partition is None else _partitions(batch.column(partition), partition),
        )


def _column(values: "pyarrow.Array", name: str) -> Column:
    import pyarrow

    if pyarrow.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kinds = (pyarrow.string(), pyarrow.binary(), pyarrow.large_string(), pyarrow.large_binary())
    if values.type not in kinds:
        raise InvalidInput(f"column {name!r} is of type {values.type}; cast it to string or binary first")
    wide = values.cast(pyarrow.large_binary())
    validity, offsets, data = wide.buffers()
    if not len(wide):
        return Column(0, memoryview(bytes(8)).cast("q"), b"")
    first, end = wide.offset, wide.offset + len(wide)
    places = memoryview(offsets).cast("B").cast("q")[first : end + 1]
    # only what these rows use is copied: a slice shares the buffers of the whole table
    used = b"" if data is None else bytes(memoryview(data)[places[0] : places[-1]])
    bits = None
    if wide.null_count:
        bits = bytes(memoryview(validity)[first >> 3 : (end + 7) >> 3])
    return Column(len(wide), places, used, int(places[0]), bits, first & 7)


def _timestamps(values: "pyarrow.Array", name: str) -> memoryview:
    import pyarrow

    if values.null_count:
        raise InvalidInput(f"column {name!r} has nulls, but every record needs a timestamp")
    if pyarrow.types.is_timestamp(values.type):
        values = values.cast(pyarrow.timestamp("ms", values.type.tz), safe=False).cast(pyarrow.int64())
    elif values.type != pyarrow.int64():
        raise InvalidInput(f"column {name!r} is of type {values.type}: must be timestamp or int64 (ms)")
    return _numbers(values)


def _partitions(values: "pyarrow.Array", name: str) -> memoryview:
    """Null leaves the choice to the partitioner."""
    import pyarrow

    if not pyarrow.types.is_integer(values.type):
        raise InvalidInput(f"column {name!r} is of type {values.type}: partitions must be whole numbers")
    if any(partition < 0 for partition in values.unique().to_pylist() if partition is not None):
        raise InvalidInput(f"column {name!r} has a partition below 0; with null the producer chooses")
    return _numbers(values.cast(pyarrow.int64()).fill_null(-1))


def _numbers(values: "pyarrow.Array") -> memoryview:
    """Of an int64 array without nulls, as it lies in memory."""
    if not len(values):
        return memoryview(b"").cast("q")
    return memoryview(values.buffers()[1]).cast("B").cast("q")[values.offset : values.offset + len(values)]


def _headers(rows: "pyarrow.Array", name: str) -> Column:
    import pyarrow

    kinds = pyarrow.types
    if rows.null_count:  # a null may still point to entries: written again, it has none
        rows = pyarrow.array([row or [] for row in rows.to_pylist()], rows.type)
    if kinds.is_map(rows.type):
        names, values = rows.keys, rows.items
    elif (kinds.is_list(rows.type) or kinds.is_large_list(rows.type)) and _are_pairs(rows.type.value_type):
        names, values = rows.values.flatten()
    else:
        raise InvalidInput(
            f"column {name!r} is of type {rows.type}: headers must be a map, or a list of (key, value)"
        )
    places = rows.offsets.cast(pyarrow.int64())
    first = places[0].as_py() if len(places) else 0
    count = places[-1].as_py() - first if len(places) else 0
    try:
        return encoded_headers(
            len(rows),
            _numbers(places) if len(places) else memoryview(bytes(8)).cast("q"),
            _column(names.slice(first, count), name),
            _column(values.slice(first, count), name),
        )
    except ValueError as error:
        raise InvalidInput(f"column {name!r}: {error}") from error


def _are_pairs(kind: "pyarrow.DataType") -> bool:
    import pyarrow

    return bool(pyarrow.types.is_struct(kind)) and int(kind.num_fields) == 2
