"""The reading task: it fetches one range of offsets and hands it to Spark as Arrow batches.

A task joins no group and commits nothing: Spark keeps the progress. `client/threads/range_reader.py` fetches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.consumer.arrow import table_below
from headrace.client.threads.range_reader import Advice
from headrace.records._columns import Columns
from headrace.spark.formats import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

# Kafka's columns by Spark's names, in the order of `table_of`.
_TABLE_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", HEADERS)

ADVICE = Advice(
    slow="check that its leader is running, or raise kafkaConsumer.pollTimeoutMs",
    lost="Set failOnDataLoss to false to continue without them.",
    recreated="Use a new checkpoint to read the new topic from its start.",
)


def kafka_table(columns: Columns, end_offset: int) -> pa.Table:
    """Return the records of one partition with offsets below `end_offset`, by Spark's column names."""
    return table_below(columns, end_offset).rename_columns(list(_TABLE_COLUMNS))


def fit_to_schema(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the schema's columns. Spark accepts only its exact names, order, types and nullability."""
    import pyarrow as pa

    arrays = [_cast(table.column(field.name), field) for field in schema]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(arrays, schema=schema).to_batches()
    return batches


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    import pyarrow as pa

    kind = column.type
    if kind == field.type:
        return column
    if field.name.endswith("timestampType") and pa.types.is_dictionary(kind):
        indices = [chunk.indices for chunk in column.chunks]
        return pa.chunked_array(indices, pa.int8()).cast(field.type)
    return column.cast(field.type)
