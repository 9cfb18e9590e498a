"""`format("headrace")` as Spark sees it. Batch and stream share options, survey and tasks.

Readers travel to the workers as they are, so they hold nothing but options until they are asked something.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.spark.batch import plan_batch
from headrace.spark.columns import fitted, kafka_columns, kafka_schema
from headrace.spark.filters import Bounds
from headrace.spark.formats import Decoding, Formats, read_formats
from headrace.spark.options import SERVERS, SourceOptions, read_options
from headrace.spark.reading import Task, read_range
from headrace.spark.schemas import checked_schema, default_schema
from headrace.spark.stream import Limit, StreamPlanner
from headrace.spark.survey import Survey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, Filter


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType | str:
        given = {name.lower() for name in self.options}
        if given.isdisjoint(("keyformat", "valueformat")):
            return kafka_schema(includes_headers=self.options.get("includeHeaders", "").lower() == "true")
        # nobody says whether it is a stream; only a batch may have an end
        is_stream = not any(name.startswith("ending") for name in given)
        return default_schema(self._read_options(is_stream=is_stream))

    def _read_options(self, *, is_stream: bool) -> SourceOptions:
        return read_options(self.options, is_stream=is_stream, servers=os.environ.get(SERVERS))

    def reader(self, schema: StructType) -> DataSourceReader:
        return HeadraceReader(self._read_options(is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HeadraceStreamReader(self._read_options(is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from headrace.spark.sink import batch_writer  # who reads does not load what writing needs

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from headrace.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class TaskPartition(InputPartition):
    def __init__(self, task: Task) -> None:
        super().__init__(task)


def read_task(partition: InputPartition, schema: pa.Schema, formats: Formats) -> Iterator[pa.RecordBatch]:
    """On an executor. Where there is nothing to read, Spark asks for a partition without a value."""
    task = partition.value
    if task is None:
        return
    if formats.is_raw:
        for columns in read_range(task):
            yield from fitted(kafka_columns(columns, task.range.end), schema)
        return
    decoding = Decoding(formats, schema, task.settings)
    try:
        for columns in read_range(task):
            yield from fitted(decoding.decoded(kafka_columns(columns, task.range.end)), schema)
    finally:
        decoding.close()


class HeadraceReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._formats = read_formats(options).as_of_now()
        self._schema = checked_schema(schema, self._formats)
        self._bounds = Bounds(prefix=self._formats.prefix)
        self.pushFilters = _PushFilters(self._bounds)

    def partitions(self) -> list[InputPartition]:
        return [TaskPartition(task) for task in plan_batch(self._options, self._bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._schema, self._formats)


class _PushFilters:
    """Learns from the filters and hands all of them back, so that nothing depends on it.

    A reader with a method of this name is refused by Spark where filters are not pushed down, which is its
    default; what looks like the method it inherits is not.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        self._bounds.learn(filters)
        return filters


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._formats = read_formats(options).as_of_now()
        self._schema = checked_schema(schema, self._formats)
        self._made: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}  # connections stay where they are

    @property
    def _planner(self) -> StreamPlanner:
        if self._made is None:
            self._made = StreamPlanner(self._options, Survey(self._options))
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._planner.latest(start, self._limit(limit))

    def _limit(self, limit: ReadLimit) -> Limit:
        """Spark carries one limit only, while a user may have given several."""
        if isinstance(limit, ReadAllAvailable):
            return Limit(is_everything=True)
        rows, size = self._options.offsets_per_trigger_max, self._options.bytes_per_trigger_max
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return Limit(rows=rows, bytes=size)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._planner.newest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.stop_at_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [TaskPartition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._schema, self._formats)

    def commit(self, end: dict[str, Any]) -> None:
        """Progress was committed before: see headrace.spark.stream."""

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()
