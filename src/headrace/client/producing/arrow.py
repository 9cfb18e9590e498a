"""A table's rows as records, column by column: no Python object is made per record.

Needs pyarrow, the `arrow` extra. Columns of text and of bytes go as they are; any other must be cast by
the caller, who knows how it is to be written.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import InvalidInput
from headrace.records._accumulator import Column

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_SLICE = 65_536  # their bytes are copied once: a bound on that memory


class Slice(NamedTuple):
    """Some rows, as `Accumulator.append_columns` takes them."""

    row_count: int
    keys: Column | None
    values: Column
    timestamps: memoryview | None


def slices(
    table: "pyarrow.Table",
    *,
    value: str = "value",
    key: str | None = None,
    timestamp: str | None = None,
) -> Iterator[Slice]:
    """The rows in order; `value`, `key` and `timestamp` name columns."""
    for name in (value, key, timestamp):
        if name is not None and name not in table.column_names:
            raise InvalidInput(f"the table has no column {name!r}, only {', '.join(table.column_names)}")
    for batch in table.to_batches(max_chunksize=ROWS_PER_SLICE):
        yield Slice(
            batch.num_rows,
            None if key is None else _column(batch.column(key), key),
            _column(batch.column(value), value),
            None if timestamp is None else _timestamps(batch.column(timestamp), timestamp),
        )


def _column(values: "pyarrow.Array", name: str) -> Column:
    import pyarrow

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
        raise InvalidInput(f"column {name!r} has nulls, and every record has a timestamp")
    if pyarrow.types.is_timestamp(values.type):
        values = values.cast(pyarrow.timestamp("ms", values.type.tz), safe=False).cast(pyarrow.int64())
    elif values.type != pyarrow.int64():
        raise InvalidInput(f"column {name!r} is of type {values.type}, neither timestamp nor int64 (ms)")
    if not len(values):
        return memoryview(b"").cast("q")
    return memoryview(values.buffers()[1]).cast("B").cast("q")[values.offset : values.offset + len(values)]
