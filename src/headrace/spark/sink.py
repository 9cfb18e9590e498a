"""Writing by `format("headrace")`: batches and streams, each micro-batch whole and once.

A writer is made in one process for the tasks, and, for streams, again in another for each commit, so all that
a commit needs travels in the messages of the tasks. A batch may be written again, in several attempts, by
several runs; which of them count is decided by the sink that the brokers keep (see headrace.machines.sinks).
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError, UnsupportedByBroker
from headrace.client.producer.sink_attempt import Place
from headrace.client.threads.admin import Admin
from headrace.spark.errors import SinkUnusable
from headrace.spark.options import SERVERS
from headrace.spark.rows import row_plan
from headrace.spark.sink_options import Guarantee, SinkOptions, sink_options
from headrace.spark.writing import Written, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

# Local properties of a task: Spark says them nowhere else.
BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"

# The query of all batch writes: whoever has the txnAppId goes on with the next txnVersion.
BATCH_QUERY = "batch"

log = logging.getLogger("headrace.spark")


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    return BatchWriter(
        sink_options(options, is_stream=False, overwrite=overwrite, servers=os.environ.get(SERVERS)), schema
    )


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    # the complete mode asks to overwrite: for a topic that is every result again, as Spark's own sink does
    return StreamWriter(
        sink_options(options, is_stream=True, overwrite=False, servers=os.environ.get(SERVERS)), schema
    )


class BatchWriter(DataSourceArrowWriter):
    """All or nothing; once, even if it is asked for again, if the user gave it a name and a number."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._rows = row_plan(schema, options.topic, options.parts)
        self._run_id = uuid.uuid4().hex

    def _place(self, task: int = 0, attempt: int = 0) -> Place:
        app_id, version = self._options.app_id, self._options.version
        if app_id is None or version is None:
            return Place(
                f"write-{self._run_id}", BATCH_QUERY, self._run_id, 0, task, attempt, is_passing=True
            )
        return Place(app_id, BATCH_QUERY, self._run_id, version, task, attempt)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task_context()
        place = self._place(context.partitionId(), context.taskAttemptId())
        return write_rows(self._options, self._rows, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if not written and self._options.app_id is None:
            return  # no task, no rows, and nobody will ask
        _commit(self._options, self._place(), written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.guarantee is not Guarantee.AT_LEAST_ONCE:
            place = self._place()
            _abort(self._options, place.app_id, place.batch_id, place.run_id)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._rows = row_plan(schema, options.topic, options.parts)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task_context()
        query_id = _property(context, QUERY_ID)
        place = Place(
            self._options.app_id or query_id,
            query_id,
            _property(context, RUN_ID),
            int(_property(context, BATCH_ID)),
            context.partitionId(),
            context.taskAttemptId(),
        )
        return write_rows(self._options, self._rows, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:  # else no task had anything to do
            _commit(self._options, written[0].place, written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Tasks that failed leave no message, and then nobody says whose attempts are open; what cannot be
        found out is ended by the next run of the query, or by time.
        """
        if self._options.guarantee is Guarantee.AT_LEAST_ONCE:
            return
        written = _written(messages)
        if written:
            place = written[0].place
            _abort(self._options, place.app_id, batchId, place.run_id)
        elif (app_id := self._options.app_id or _query_id(self._options.checkpoint)) is not None:
            _abort(self._options, app_id, batchId)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _property(context: TaskContext, name: str) -> str:
    value: str | None = context.getLocalProperty(name)
    if value is None:
        raise SinkUnusable(f"this Spark does not tell its tasks {name}, which exactly-once needs")
    return value


def _written(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _commit(options: SinkOptions, place: Place, written: list[Written]) -> None:
    what = f"batch {place.batch_id} of sink {place.app_id!r}"
    if not all(each.is_exactly_once for each in written):
        said = "%s was written at least once: %s"
        if options.guarantee is Guarantee.AT_LEAST_ONCE:
            log.info(said, what, "deliveryGuarantee says so")
        else:
            log.warning(said, what, "the brokers have no sinks; a batch that is written again is there twice")
        return
    producers = [each.producer for each in written if each.producer is not None]
    with Admin(options.admin_settings) as admin:
        admin.commit_sink(place.app_id, place.query_id, place.run_id, place.batch_id, producers)
    was_before = any(each.was_committed for each in written)
    log.info("%s %s, exactly once", what, "was committed before" if was_before else "is committed")


def _abort(options: SinkOptions, app_id: str, batch_id: int, run_id: str | None = None) -> None:
    """Nothing depends on it: what is left open is ended by the next run, or by time."""
    try:
        with Admin(options.admin_settings) as admin:
            for sink in admin.list_sinks():
                is_ours = sink.batch_id == batch_id if run_id is None else sink.run_id == run_id
                if is_ours and sink.app_id == app_id:
                    admin.abort_sink(app_id, sink.query_id, sink.run_id)
    except UnsupportedByBroker:
        log.debug("the brokers have no sinks, and so nothing to abort")
    except ClientError as error:
        log.warning("what sink %r has open could not be aborted now: %s", app_id, error)


def _query_id(checkpoint: str | None) -> str | None:
    """As Spark has written it down, if that is on this machine."""
    where = urlsplit(checkpoint or "")
    if checkpoint is None or where.scheme not in ("", "file"):
        return None
    try:
        found = json.loads((Path(where.path) / "metadata").read_text())
    except (OSError, ValueError):
        return None
    query_id = found.get("id")
    return query_id if isinstance(query_id, str) else None
