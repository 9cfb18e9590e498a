"""`format("headrace_lake")`: writes DataFrames to Delta tables, batch and stream, each batch once.

Tasks write Parquet files; their messages carry names, sizes and statistics, and one commit on the driver adds
the files together with the number of the batch (see headrace.lake.derived). Reading is for batch queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.lake.derived import DerivedTable
from headrace.lake.files import WrittenFile
from headrace.spark.errors import InvalidOption, SinkUnusable

if TYPE_CHECKING:
    from pathlib import Path

QUERY_ID = "sql.streaming.queryId"
NAMES = ("path", "txnAppId", "txnVersion", "checkpointLocation", "queryName", "outputMode")


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """What a task reports to the driver's commit."""

    files: list[WrittenFile]
    query_id: str | None = None


class HeadraceLake(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace_lake"

    def schema(self) -> StructType:
        from headrace.lake.table_files import table_schema

        return from_arrow_schema(table_schema(table_path(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        return LakeReader(table_path(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = checked_options(self.options, overwrite=overwrite)
        app_id, version = options.get("txnappid"), options.get("txnversion")
        if (app_id is None) != (version is None):
            raise InvalidOption(
                "a batch write needs both txnAppId (its name) and txnVersion (its number), or none"
            )
        if version is not None and not version.isdecimal():
            raise InvalidOption(f"txnVersion={version}: must be a whole number, at least 0")
        return LakeWriter(table_path(self.options), schema, app_id, int(version or 0))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options = checked_options(self.options, overwrite=overwrite)
        if "txnappid" in options or "txnversion" in options:
            raise InvalidOption(
                "txnAppId and txnVersion are for batch writes: a stream has its query id and batches"
            )
        return LakeStreamWriter(table_path(self.options), schema)


def checked_options(given: Mapping[str, str], *, overwrite: bool) -> dict[str, str]:
    if overwrite:
        raise InvalidOption(
            'headrace_lake only appends: use .mode("append"), or the output mode append or update'
        )
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name.lower() not in known:
            likely = get_close_matches(name.lower(), known, 1)
            hint = f"; did you mean {known[likely[0]]}?" if likely else ""
            raise InvalidOption(f"unknown option {name}{hint}")
    return {name.lower(): value for name, value in given.items()}


def table_path(given: Mapping[str, str]) -> Path:
    from pathlib import Path

    text = next((value for name, value in given.items() if name.lower() == "path"), "")
    where = urlsplit(text)
    if not text or where.scheme not in ("", "file"):
        raise InvalidOption(
            f"path={text!r}: name the directory of the table, on a file system that all workers see, in "
            "save(PATH), start(PATH) or load(PATH)"
        )
    return Path(where.path if where.scheme else text)


class LakeWriter(DataSourceArrowWriter):
    def __init__(self, path: Path, schema: StructType, app_id: str | None, version: int) -> None:
        self._table = DerivedTable(path)
        self._schema = self._table.prepare(to_arrow_schema(schema, timezone="UTC"))
        self._app_id = app_id
        self._version = version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return WrittenFiles(self._table.write(self._schema, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._table.commit(_files(messages), self._schema, self._app_id, self._version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: files that no commit names are not part of the table."""


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """Spark writes a micro-batch again after a failure; the table knows its number."""

    def __init__(self, path: Path, schema: StructType) -> None:
        self._table = DerivedTable(path)
        self._schema = self._table.prepare(to_arrow_schema(schema, timezone="UTC"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        if query_id is None:
            raise SinkUnusable(f"Spark did not pass the task property {QUERY_ID}: use Spark 4.3")
        return WrittenFiles(self._table.write(self._schema, iterator), query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        ids = {each.query_id for each in messages if isinstance(each, WrittenFiles)}
        if ids:  # else there were no tasks
            (query_id,) = ids
            self._table.commit(_files(messages), self._schema, f"headrace/query/{query_id}", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: files that no commit names are not part of the table."""


def _files(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [file for each in messages if isinstance(each, WrittenFiles) for file in each.files]


# --- reading ---------------------------------------------------------------------------------------------


class FilePartition(InputPartition):
    def __init__(self, name: str) -> None:
        super().__init__(name)


class LakeReader(DataSourceReader):
    """One task for each file of the newest version."""

    def __init__(self, path: Path, schema: StructType) -> None:
        self._path = path
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        from headrace.lake.table_files import table_files

        return [FilePartition(name) for name in table_files(self._path)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from headrace.lake.table_files import file_rows

        if partition.value is None:  # of a table without files
            return
        for table in file_rows(self._path / partition.value, self._schema):
            yield from table.to_batches()
