"""The columns of a lake table that hold the record itself, byte for byte.

Names begin with an underscore, so that those of the fields of decoded values can be beside them. A table has
one topic, so no column names it. A timestamp beyond the year 294246 does not fit and is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.consumer.arrow import table_below
from headrace.lake.errors import WrongTable
from headrace.lake.schema import fits

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.records._columns import Columns

PARTITION, OFFSET, TIMESTAMP, KEY = "_partition", "_offset", "_timestamp", "_key"
TOMBSTONE, REASON = "_tombstone", "_reason"
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
RAW_SCHEMA = pa.schema(
    [
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
        pa.field("_timestampType", pa.int32()),  # 0: of the producer; 1: of the broker
        pa.field(KEY, pa.binary()),
        pa.field("_value", pa.binary()),
        pa.field("_headers", pa.list_(pa.field("element", HEADER))),
    ]
)
# Records that could not be rows of a table with typed columns.
DEAD_SCHEMA = RAW_SCHEMA.append(pa.field(REASON, pa.string()))
_MILLIS_MAX = (1 << 63) // 1000 - 1


def raw_rows(columns: Columns, end_offset: int) -> pa.Table:
    """Return the fetched records of one partition below `end_offset`, by the table's columns."""
    table = table_below(columns, end_offset)
    arrays = [
        table["partition"],
        table["offset"],
        _micros(table["timestamp"]),
        pa.chunked_array(
            [chunk.indices.cast(pa.int32()) for chunk in table["timestamp_type"].chunks], pa.int32()
        ),
        table["key"],
        table["value"],
        table["headers"].cast(RAW_SCHEMA.field("_headers").type),
    ]
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def own_schema(*, keeps_value: bool) -> pa.Schema:
    """The columns for the record itself where its value has columns of its own.

    `_tombstone` is true for a record without a value, else null: a value may have nulls in all fields.
    """
    fields = [field for field in RAW_SCHEMA if keeps_value or field.name != "_value"]
    return pa.schema([*fields, pa.field(TOMBSTONE, pa.bool_())])


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = RAW_SCHEMA.field(TIMESTAMP).type
    try:
        return times.cast(kind)
    except pa.ArrowInvalid:
        is_small = pc.less_equal(times.cast(pa.int64()), _MILLIS_MAX)
        return pc.if_else(is_small, times, pa.scalar(None, times.type)).cast(kind)


def check_columns(schema: pa.Schema, path: Path, own: pa.Schema = RAW_SCHEMA) -> None:
    """Raise WrongTable if a column of ours is missing. Columns that a user added are null in new rows."""
    for field in own:
        index = schema.get_field_index(field.name)
        if index < 0 or not fits(field.type, schema.field(index).type):
            found = "missing" if index < 0 else str(schema.field(index).type)
            raise WrongTable(
                f"table {path}: column {field.name} is {found}, not {field.type}: somebody has changed the "
                "table. Restore the column, or make a new table"
            )


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table's columns; a file that is older than a column has nulls there."""
    arrays = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
