"""The schema of a query, in Spark's words and in Arrow's: what is declared, and what is so by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.spark.batch import tasks_of
from headrace.spark.columns import HEADERS, KAFKA_COLUMNS, kafka_columns
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import Formats, Part, read_formats
from headrace.spark.planning import ranges_between
from headrace.spark.reading import read_range
from headrace.spark.survey import Survey

if TYPE_CHECKING:
    from headrace.spark.options import SourceOptions

# What is learned of a topic whose JSON nobody declares: the first records of each partition.
SAMPLE_RECORDS = 1_000

_KAFKA_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def default_schema(options: SourceOptions) -> StructType:
    """Of a query that declares none."""
    formats = read_formats(options)
    fields: list[pa.Field] = []
    structs = {part.name: _type(part, options) for part in (formats.key, formats.value) if part is not None}
    kafka_names = formats.kafka_names(includes_headers=True)
    if "value" in structs:
        fields += [field for field in structs["value"] if field.name not in kafka_names]
    for own, kafka in formats.kafka_names(includes_headers=options.includes_headers).items():
        fields.append(pa.field(own, structs.get(kafka, _KAFKA_TYPES[kafka])))
    return from_arrow_schema(pa.schema([field.with_type(_shown(field.type)) for field in fields]))


def _type(part: Part, options: SourceOptions) -> pa.StructType:
    if not part.is_learned:
        return part.decoder().type
    sample = _sample(part.name, options)
    if not len(sample):
        raise InvalidOption(
            f"the topic holds nothing to learn the {part.name}s' columns from: declare them by .schema(...)"
        )
    return part.decoder(sample=sample).type


def _sample(name: str, options: SourceOptions) -> pa.ChunkedArray:
    with Survey(options) as survey:
        topics = survey.required_topics()
        starts = survey.earliest(survey.partitions(topics))
        ends = survey.latest(starts)
        near = {at: min(end, starts[at] + SAMPLE_RECORDS) for at, end in ends.items()}
        tasks = tasks_of(ranges_between(starts, near), topics, options)
    found = [kafka_columns(columns, task.range.end)[name] for task in tasks for columns in read_range(task)]
    return pa.chunked_array([chunk for one in found for chunk in one.chunks], pa.binary())


def _shown(kind: pa.DataType) -> pa.DataType:
    """What is always null is shown as text: Spark writes columns without a type nowhere."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_shown(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_shown(kind.value_type))
    return kind


def checked_schema(schema: StructType, formats: Formats) -> pa.Schema:
    """Arrow's schema of the columns that are wanted; InvalidOption for those that are not to be had."""
    kafka = formats.kafka_names(includes_headers=True)
    unknown = [name for name in schema.fieldNames() if name not in kafka]
    if unknown and formats.value is None:
        raise InvalidOption(f"there is no column {unknown[0]}; there are {', '.join(KAFKA_COLUMNS)}")
    return to_arrow_schema(schema, timezone="UTC")
