"""The data source `format("headrace")`: schema, batch reader, stream reader.

Spark pickles readers and sends them to the workers, so they hold only options until they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from headrace.client.threads.range_reader import ReadTask, read_range
from headrace.spark.decoding import RowDecoder
from headrace.spark.errors import READING, InvalidOption, without_frames
from headrace.spark.filters import Bounds
from headrace.spark.formats import HEADERS, KAFKA_COLUMNS, Format, Formats, read_formats
from headrace.spark.options import SERVERS, SourceOptions, read_options
from headrace.spark.planning import Limit, StreamPlanner, plan_batch, tasks_for
from headrace.spark.query_topics import QueryTopics
from headrace.spark.ranges import ranges_between
from headrace.spark.reading import fit_to_schema, kafka_table
from headrace.spark.worker_memory import spare_collector

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, Filter

    from headrace.spark.history import HistoryTask

# The records of each partition from which the columns of JSON are inferred.
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


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def with_short_errors(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """For what asks brokers or a registry."""

    @wraps(work)
    def call(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*args, **named)
        except ClientError as error:
            raise without_frames(error, READING) from None

    return call


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    @with_short_errors
    def schema(self) -> StructType | str:
        given = {name.lower() for name in self.options}
        if given.isdisjoint(("keyformat", "valueformat")):
            return _kafka_schema(includes_headers=self.options.get("includeHeaders", "").lower() == "true")
        # Spark does not say whether this is a stream; only a batch query may have an end
        is_stream = not any(name.startswith("ending") for name in given)
        return default_schema(self._read_options(is_stream=is_stream))

    def _read_options(self, *, is_stream: bool) -> SourceOptions:
        return read_options(self.options, is_stream=is_stream, servers=os.environ.get(SERVERS))

    @with_short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        spare_collector()
        return HeadraceReader(self._read_options(is_stream=False), schema)

    @with_short_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HeadraceStreamReader(self._read_options(is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from headrace.spark.sink import batch_writer  # a query that only reads need not load it

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from headrace.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class TaskPartition(InputPartition):
    def __init__(self, task: ReadTask | HistoryTask) -> None:
        super().__init__(task)


def read_task(
    partition: InputPartition, schema: pa.Schema, formats: Formats | None
) -> Iterator[pa.RecordBatch]:
    """Runs in a task; `formats` is None if keys and values stay bytes.

    For an empty micro-batch Spark passes a partition without a value.
    """
    spare_collector()
    task = partition.value
    if task is None:
        return
    try:
        if isinstance(task, ReadTask):
            tables = (kafka_table(columns, task.range.end) for columns in read_range(task))
        else:
            tables = task.tables()  # of a lake table
        if formats is None:
            for table in tables:
                yield from fit_to_schema(table, schema)
            return
        decoder = RowDecoder(formats, schema, task.settings)
        try:
            for table in tables:
                yield from fit_to_schema(decoder.decode(table), schema)
        finally:
            decoder.close()
    except ClientError as error:
        raise without_frames(error, READING) from None


class HeadraceReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        formats = read_formats(options).with_latest_schemas()
        self._formats = None if formats.is_raw else formats
        self._schema = checked_schema(schema, formats)
        self._bounds = Bounds(prefix=formats.prefix)
        self.pushFilters = _PushFilters(self._bounds)

    @with_short_errors
    def partitions(self) -> list[InputPartition]:
        return [TaskPartition(task) for task in plan_batch(self._options, self._bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._schema, self._formats)


class _PushFilters:
    """Notes the filters and returns all of them, so that Spark evaluates them as well.

    Spark rejects a reader that overrides `pushFilters` while filter pushdown is off, which is its default.
    With this `__func__` the attribute looks like the inherited method.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        self._bounds.add(filters)
        return filters


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        formats = read_formats(options).with_latest_schemas()
        self._formats = None if formats.is_raw else formats
        self._schema = checked_schema(schema, formats)
        self._made: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # connections cannot be pickled

    @property
    def _planner(self) -> StreamPlanner:
        if self._made is None:
            self._made = StreamPlanner(self._options, QueryTopics(self._options))
        return self._made

    @with_short_errors
    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial_offsets()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    @with_short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._planner.next_end(start, self._limit(limit))

    def _limit(self, limit: ReadLimit) -> Limit:
        """Spark passes one limit; the options may have others as well."""
        if isinstance(limit, ReadAllAvailable):
            return Limit(is_everything=True)
        rows, size = self._options.offsets_per_trigger_max, self._options.bytes_per_trigger_max
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return Limit(rows=rows, bytes=size)

    @with_short_errors
    def reportLatestOffset(self) -> dict[str, Any]:
        return self._planner.latest_offsets()

    @with_short_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.stop_at_current_ends()

    @with_short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [TaskPartition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._schema, self._formats)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: see headrace.spark.planning."""

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()


# --- schemas ---------------------------------------------------------------------------------------------


def _kafka_schema(*, includes_headers: bool) -> str:
    """Return the columns of a query without formats, in Spark's DDL."""
    return ", ".join(
        f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items() if includes_headers or name != HEADERS
    )


def default_schema(options: SourceOptions) -> StructType:
    """Return the schema of a query that declares none."""
    formats = read_formats(options)
    fields: list[pa.Field] = []
    structs = {each.name: _type(each, options) for each in (formats.key, formats.value) if each is not None}
    kafka_names = formats.kafka_names(includes_headers=True)
    if "value" in structs:
        fields += [field for field in structs["value"] if field.name not in kafka_names]
    for own, kafka in formats.kafka_names(includes_headers=options.includes_headers).items():
        fields.append(pa.field(own, structs.get(kafka, _KAFKA_TYPES[kafka])))
    return from_arrow_schema(pa.schema([field.with_type(_shown(field.type)) for field in fields]))


def _type(format: Format, options: SourceOptions) -> pa.StructType:
    if not format.is_inferred:
        return format.decoder().type
    sample = _sample(format.name, options)
    if not len(sample):
        raise InvalidOption(
            f"the columns of the {format.name}s cannot be inferred, because the topic has no records: "
            "declare them with .schema(...)"
        )
    return format.decoder(sample=sample).type


def _sample(name: str, options: SourceOptions) -> pa.ChunkedArray:
    with QueryTopics(options) as query:
        topics = query.required_topics()
        starts = query.earliest(query.partitions(topics))
        ends = query.latest(starts)
        near = {at: min(end, starts[at] + SAMPLE_RECORDS) for at, end in ends.items()}
        tasks = tasks_for(ranges_between(starts, near), topics, options)
    found = [kafka_table(columns, task.range.end)[name] for task in tasks for columns in read_range(task)]
    return pa.chunked_array([chunk for one in found for chunk in one.chunks], pa.binary())


def _shown(kind: pa.DataType) -> pa.DataType:
    """Show a field that is always null as a string, because Spark cannot write columns without a type."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_shown(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_shown(kind.value_type))
    return kind


def checked_schema(schema: StructType, formats: Formats) -> pa.Schema:
    """Return Arrow's schema of the query; raise InvalidOption for a column that does not exist."""
    kafka = formats.kafka_names(includes_headers=True)
    unknown = [name for name in schema.fieldNames() if name not in kafka]
    if unknown and formats.value is None:
        raise InvalidOption(
            f"there is no column {unknown[0]}: without valueFormat the columns are {', '.join(KAFKA_COLUMNS)}"
        )
    return to_arrow_schema(schema, timezone="UTC")
