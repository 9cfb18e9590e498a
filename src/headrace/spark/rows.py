"""The rows of a DataFrame as records: which columns mean what, and the tables that a producer sends.

    value      text or bytes; null is a tombstone     key        text or bytes
    topic      text, unless one option says it all    partition  whole number; null lets the producer choose
    headers    array of (key, value), or a map        timestamp  null is the moment of writing

Whatever other columns there are is not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.spark.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Which columns there are; it travels to the tasks."""

    topic: str | None  # of all rows
    columns: tuple[str, ...]

    @property
    def roles(self) -> dict[str, str | None]:
        """The columns by what `send_arrow` calls them."""
        names = ("key", "headers", "partition", "timestamp")
        return {"value": "value"} | {name: name if name in self.columns else None for name in names}


def row_plan(schema: StructType, topic: str | None) -> RowPlan:
    """InvalidOption for rows that cannot be records."""
    found = {field.name.lower(): field for field in schema.fields}
    if "value" not in found:
        there = ", ".join(field.name for field in schema.fields)
        raise InvalidOption(
            f"rows need a column value, of text or bytes, and have {there}; "
            'try .selectExpr("to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in found:
        raise InvalidOption("give the option topic, or rows a column topic")
    for name, kinds in _KINDS.items():
        field = found.get(name)
        if field is not None and not isinstance(field.dataType, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise InvalidOption(
                f"column {field.name} is {field.dataType.simpleString()}, and must be {wanted}"
            )
    return RowPlan(topic, tuple(name for name in _KINDS if name in found))


def tables(plan: RowPlan, batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[str, pa.Table]]:
    """The rows by topic, in their order within each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name.lower() for name in batch.schema.names]
    table = pa.table({name: batch.column(names.index(name)) for name in plan.columns})
    if "timestamp" in plan.columns:
        place = table.column_names.index("timestamp")
        moments = table.column(place).cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        table = table.set_column(place, "timestamp", moments.fill_null(now_ms))
    if plan.topic is not None:
        yield plan.topic, table
        return
    topics = table.column("topic")
    if topics.null_count:
        raise InvalidOption("a row has no topic: its column topic is null, and there is no option topic")
    for topic in pc.unique(topics).to_pylist():
        yield topic, table.filter(pc.equal(topics, topic))
