"""The rows of a DataFrame as records: which columns mean what, and the tables that a producer sends.

    value      text or bytes; null is a tombstone     key        text or bytes
    topic      text, unless one option says it all    partition  whole number; null lets the producer choose
    headers    array of (key, value), or a map        timestamp  null is the moment of writing

Whatever other columns there are is not written. With a format (see headrace.spark.formats) keys and values
are of any type; and where there is no column `value`, the columns are its fields, as reading shows them, and
what Kafka knows of a record has an underscore in front (`_key`).
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
from headrace.spark.columns import KAFKA_COLUMNS
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import PREFIX, Part

_TEXT = (StringType, BinaryType)
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType,),
    "headers": (ArrayType, MapType),
    "partition": (IntegerType, LongType, ShortType),
    "timestamp": (TimestampType, TimestampNTZType),
}


class RowPlan(NamedTuple):
    """Which columns there are, and how they are written; it travels to the tasks."""

    topic: str | None  # of all rows
    columns: dict[str, str]  # by what they mean, the columns' names in lower case
    fields: tuple[str, ...] = ()  # of values that are made of columns; empty: there is a column of values
    parts: tuple[Part, ...] = ()  # keys and values that have a format
    types: tuple[pa.DataType, ...] = ()  # of what those are made from

    @property
    def roles(self) -> dict[str, str | None]:
        """The columns by what `send_arrow` calls them."""
        names = ("key", "headers", "partition", "timestamp")
        return {"value": "value"} | {name: name if name in self.columns else None for name in names}


def row_plan(schema: StructType, topic: str | None, parts: tuple[Part, ...] = ()) -> RowPlan:
    """InvalidOption for rows that cannot be records."""
    formats = {part.name: part for part in parts}
    found = {field.name.lower(): field for field in schema.fields}
    columns = {name: name for name in _KINDS if name in found}
    fields: tuple[str, ...] = ()
    if "value" not in found and "value" in formats:
        names = [name for name in KAFKA_COLUMNS if name != "value"]
        columns = {name: PREFIX + name for name in names if name in _KINDS and PREFIX + name in found}
        kafkas = {(PREFIX + name).lower() for name in names}
        fields = tuple(field.name for field in schema.fields if field.name.lower() not in kafkas)
    if "value" not in found and not fields:
        there = ", ".join(field.name for field in schema.fields)
        raise InvalidOption(
            f"rows need a column value, of text or bytes, and have {there}; "
            'try .option("valueFormat", "json"), or .selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in columns:
        raise InvalidOption("give the option topic, or rows a column topic")
    for name, column in columns.items():
        kind, kinds = found[column].dataType, _KINDS[name]
        if name not in formats and not isinstance(kind, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            hint = f"; {name}Format writes others" if kinds is _TEXT else ""
            raise InvalidOption(
                f"column {found[column].name} is {kind.simpleString()}, and must be {wanted}{hint}"
            )
    parts = tuple(part for part in parts if part.name in columns or part.name == "value")
    types = tuple(_type(part, schema, found, columns, fields) for part in parts)
    return RowPlan(topic, columns, fields, parts, types)


def _type(
    part: Part,
    schema: StructType,
    found: Mapping[str, StructField],
    columns: Mapping[str, str],
    fields: tuple[str, ...],
) -> pa.DataType:
    """What the part's values are made from, if they can be."""
    if part.name == "value" and fields:
        whole = StructType([field for field in schema.fields if field.name in fields])
        kind = pa.struct(list(to_arrow_schema(whole, timezone="UTC")))
    else:
        column = found[columns[part.name]]
        kind = to_arrow_schema(StructType([column]), timezone="UTC").field(0).type
    try:
        part.check(kind)
    except SchemaError as error:
        raise InvalidOption(f"{part.name}Format {part.format}: {error}") from error
    return kind


class Tables:
    """On an executor: batches of rows as tables of records."""

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan
        self._encoders: dict[tuple[str, str], Encoder] = {}

    def of(self, batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[str, pa.Table]]:
        """The rows by topic, in their order within each."""
        plan = self._plan
        names = [name.lower() for name in batch.schema.names]
        columns = {name: batch.column(names.index(column)) for name, column in plan.columns.items()}
        if plan.fields:
            arrays = [batch.column(batch.schema.get_field_index(name)) for name in plan.fields]
            columns["value"] = pa.StructArray.from_arrays(arrays, names=list(plan.fields))
        table = pa.table(columns)
        if "timestamp" in plan.columns:
            place = table.column_names.index("timestamp")
            moments = table.column(place).cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
            table = table.set_column(place, "timestamp", moments.fill_null(now_ms))
        if plan.topic is not None:
            yield plan.topic, self._encoded(plan.topic, table)
            return
        topics = table.column("topic")
        if topics.null_count:
            raise InvalidOption("a row has no topic: its column topic is null, and there is no option topic")
        for topic in pc.unique(topics).to_pylist():
            yield topic, self._encoded(topic, table.filter(pc.equal(topics, topic)))

    def _encoded(self, topic: str, table: pa.Table) -> pa.Table:
        """With keys and values as bytes."""
        for part, kind in zip(self._plan.parts, self._plan.types, strict=True):
            encoder = self._encoders.get((topic, part.name))
            if encoder is None:
                encoder = self._encoders[topic, part.name] = part.encoder(kind, topic)
            place = table.column_names.index(part.name)
            table = table.set_column(place, part.name, encoder.values(table.column(place)))
        return table
