"""Rows of a DataFrame as records: the meaning of the columns, and the Arrow tables that a producer sends.

    value      string or binary; null is a tombstone     key        string or binary
    topic      string, unless the option topic is set    partition  whole number; null: the producer chooses
    headers    array of (key, value), or a map           timestamp  null: the time of writing

Other columns are not written. With a format (see headrace.spark.formats) keys and values have any type. With
`valueFormat` and no column `value`, the columns are the value's fields, as in reading, and Kafka's columns
have an underscore in front (`_key`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.schemas import Encoder, SchemaError
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import KAFKA_COLUMNS, PREFIX, Format

_TEXT = (StringType, BinaryType)
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType,),
    "headers": (ArrayType, MapType),
    "partition": (IntegerType, LongType, ShortType),
    "timestamp": (TimestampType, TimestampNTZType),
}


class RowLayout(NamedTuple):
    """The columns and how they are written; sent to the tasks."""

    topic: str | None  # of all rows; None: the column topic
    columns: dict[str, str]  # key, headers, … → the column's name in lower case
    fields: tuple[str, ...] = ()  # the columns that make up the value; empty: there is a column value
    formats: tuple[Format, ...] = ()  # of the keys and of the values
    types: tuple[pa.DataType, ...] = ()  # of the data that those encode

    @property
    def send_arguments(self) -> dict[str, str | None]:
        """Return the columns as arguments of `send_arrow`."""
        names = ("key", "headers", "partition", "timestamp")
        return {"value": "value"} | {name: name if name in self.columns else None for name in names}


def row_layout(schema: StructType, topic: str | None, formats: tuple[Format, ...] = ()) -> RowLayout:
    """Raise InvalidOption if rows of this schema cannot be records."""
    by_name = {format.name: format for format in formats}
    found = {field.name.lower(): field for field in schema.fields}
    columns = {name: name for name in _KINDS if name in found}
    fields: tuple[str, ...] = ()
    if "value" not in found and "value" in by_name:
        names = [name for name in KAFKA_COLUMNS if name != "value"]
        columns = {name: PREFIX + name for name in names if name in _KINDS and PREFIX + name in found}
        kafka = {(PREFIX + name).lower() for name in names}
        fields = tuple(field.name for field in schema.fields if field.name.lower() not in kafka)
    if "value" not in found and not fields:
        existing = ", ".join(field.name for field in schema.fields)
        raise InvalidOption(
            f"the rows have no column value (string or binary), only {existing}; "
            'try .option("valueFormat", "json"), or .selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in columns:
        raise InvalidOption("the topic is missing: set the option topic, or add a column topic")
    for name, column in columns.items():
        kind, kinds = found[column].dataType, _KINDS[name]
        if name not in by_name and not isinstance(kind, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            hint = f"; or set {name}Format to write other types" if kinds is _TEXT else ""
            raise InvalidOption(
                f"column {found[column].name} has type {kind.simpleString()}: cast it to {wanted}{hint}"
            )
    used = tuple(each for each in formats if each.name in columns or each.name == "value")
    types = tuple(_type(each, schema, found, columns, fields) for each in used)
    return RowLayout(topic, columns, fields, used, types)


def _type(
    format: Format,
    schema: StructType,
    found: Mapping[str, StructField],
    columns: Mapping[str, str],
    fields: tuple[str, ...],
) -> pa.DataType:
    """Return the type of the data that the format encodes; raise InvalidOption if it cannot."""
    if format.name == "value" and fields:
        whole = StructType([field for field in schema.fields if field.name in fields])
        kind = pa.struct(list(to_arrow_schema(whole, timezone="UTC")))
    else:
        column = found[columns[format.name]]
        kind = to_arrow_schema(StructType([column]), timezone="UTC").field(0).type
    try:
        format.check(kind)
    except SchemaError as error:
        raise InvalidOption(f"{format.name}Format={format.format}: {error}") from error
    return kind


class RecordTables:
    """Runs in a task: turns batches of rows into tables of records."""

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self._encoders: dict[tuple[str, str], Encoder] = {}

    def by_topic(self, batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows of each topic, in their order."""
        layout = self._layout
        names = [name.lower() for name in batch.schema.names]
        columns = {name: batch.column(names.index(column)) for name, column in layout.columns.items()}
        if layout.fields:
            arrays = [batch.column(batch.schema.get_field_index(name)) for name in layout.fields]
            columns["value"] = pa.StructArray.from_arrays(arrays, names=list(layout.fields))
        table = pa.table(columns)
        if "timestamp" in layout.columns:
            index = table.column_names.index("timestamp")
            moments = table.column(index).cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
            table = table.set_column(index, "timestamp", moments.fill_null(now_ms))
        if layout.topic is not None:
            yield layout.topic, self._encode(layout.topic, table)
            return
        topics = table.column("topic")
        if topics.null_count:
            raise InvalidOption("a row has no topic: fill its column topic, or set the option topic")
        for topic in pc.unique(topics).to_pylist():
            yield topic, self._encode(topic, table.filter(pc.equal(topics, topic)))

    def _encode(self, topic: str, table: pa.Table) -> pa.Table:
        """Turn keys and values into bytes."""
        for format, kind in zip(self._layout.formats, self._layout.types, strict=True):
            encoder = self._encoders.get((topic, format.name))
            if encoder is None:
                encoder = self._encoders[topic, format.name] = format.encoder(kind, topic)
            index = table.column_names.index(format.name)
            table = table.set_column(index, format.name, encoder.values(table.column(index)))
        return table
