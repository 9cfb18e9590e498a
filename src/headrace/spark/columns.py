"""The columns of a query: Kafka's own, by Spark's names, and from fetched records to Arrow as Spark wants it.

Spark takes a batch only if names, types and nullability are exactly those of the schema, so that is made of
the schema once, and every batch is given it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.tables import table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.records._columns import Columns

# Names and types as Spark's Kafka connector has them, in its order.
HEADERS = "headers"
KAFKA_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key: string, value: binary>>",
}

# The same in the order of `table_of`.
_TABLE_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", HEADERS)


def kafka_schema(*, includes_headers: bool) -> str:
    """In Spark's own notation."""
    return ", ".join(
        f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items() if includes_headers or name != HEADERS
    )


def kafka_columns(columns: Columns, end_offset: int) -> pa.Table:
    """All of Kafka's columns by Spark's names, without what lies at or behind `end_offset`.

    Of one partition only, whose offsets rise.
    """
    table = table_of(columns)
    rows = table.num_rows
    if rows and table["offset"][rows - 1].as_py() >= end_offset:
        table = table.slice(0, _count_below(columns, end_offset))
    return table.rename_columns(list(_TABLE_COLUMNS))


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


def fitted(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The schema's columns of the table, in its order and of its types."""
    import pyarrow as pa

    arrays = [_column(table.column(field.name), field) for field in schema]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(arrays, schema=schema).to_batches()
    return batches


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    import pyarrow as pa

    kind = column.type
    if kind == field.type:
        return column
    if field.name.endswith("timestampType") and pa.types.is_dictionary(kind):
        indices = [chunk.indices for chunk in column.chunks]
        return pa.chunked_array(indices, pa.int8()).cast(field.type)
    return column.cast(field.type)
