"""The sink of `format("headrace")`: batch writes and streams, exactly once with Headrace as the broker.

Spark creates a writer in one process for the tasks and, for a stream, another one in another process for each
commit, so everything that a commit needs is in the tasks' results. A micro-batch may be written several
times, by several attempts and runs; the sink that the brokers keep decides which attempts count (see
headrace.machines.sinks).
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError, UnsupportedByBroker
from headrace.client.producer.sink_attempt import AttemptId, State
from headrace.client.threads.admin import Admin
from headrace.client.threads.producer import Producer, SinkAttempt
from headrace.spark.errors import WRITING, SinkUnusable, without_frames
from headrace.spark.options import SERVERS
from headrace.spark.rows import RecordTables, RowLayout, row_layout
from headrace.spark.sink_options import Guarantee, SinkOptions, sink_options
from headrace.spark.worker_memory import spare_collector

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client.producer.deliveries import TableDelivery

# Local properties of a task, the only place where Spark passes these ids.
BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"

# The query id of all batch writes: any program may continue a txnAppId with the next txnVersion.
BATCH_QUERY = "batch"

_AT_LEAST_ONCE = "%s was written at least once: %s"

log = logging.getLogger("headrace.spark")


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What a task reports to the driver's commit."""

    attempt_id: AttemptId
    producer: tuple[int, int] | None = None  # of the attempt
    was_committed: bool = False  # the batch was, before this task began
    is_exactly_once: bool = True


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    spare_collector()
    return BatchWriter(
        sink_options(options, is_stream=False, overwrite=overwrite, servers=os.environ.get(SERVERS)), schema
    )


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    spare_collector()
    # complete mode sets `overwrite`: a topic then gets every result again, as with Spark's Kafka sink
    return StreamWriter(
        sink_options(options, is_stream=True, overwrite=False, servers=os.environ.get(SERVERS)), schema
    )


class BatchWriter(DataSourceArrowWriter):
    """Atomic; with txnAppId and txnVersion also idempotent."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._layout = row_layout(schema, options.topic, options.formats)
        self._run_id = uuid.uuid4().hex

    def _attempt_id(self, task: int = 0, attempt: int = 0) -> AttemptId:
        app_id, version = self._options.app_id, self._options.version
        if app_id is None or version is None:
            return AttemptId(
                f"write-{self._run_id}", BATCH_QUERY, self._run_id, 0, task, attempt, is_passing=True
            )
        return AttemptId(app_id, BATCH_QUERY, self._run_id, version, task, attempt)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task_context()
        attempt_id = self._attempt_id(context.partitionId(), context.taskAttemptId())
        return _write_rows(self._options, self._layout, attempt_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        results = _results(messages)
        if not results and self._options.app_id is None:
            return  # no task, no rows
        _commit(self._options, self._attempt_id(), results)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.guarantee is not Guarantee.AT_LEAST_ONCE:
            attempt_id = self._attempt_id()
            _abort(self._options, attempt_id.app_id, attempt_id.batch_id, attempt_id.run_id)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._layout = row_layout(schema, options.topic, options.formats)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task_context()
        query_id = _property(context, QUERY_ID)
        attempt_id = AttemptId(
            self._options.app_id or query_id,
            query_id,
            _property(context, RUN_ID),
            int(_property(context, BATCH_ID)),
            context.partitionId(),
            context.taskAttemptId(),
        )
        return _write_rows(self._options, self._layout, attempt_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        results = _results(messages)
        if results:  # else there were no tasks
            _commit(self._options, results[0].attempt_id, results)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the open attempts, if they can be found: failed tasks leave no result.

        The others are aborted by the next run of the query, or by the transaction timeout.
        """
        if self._options.guarantee is Guarantee.AT_LEAST_ONCE:
            return
        results = _results(messages)
        if results:
            attempt_id = results[0].attempt_id
            _abort(self._options, attempt_id.app_id, batchId, attempt_id.run_id)
        elif (app_id := self._options.app_id or _query_id(self._options.checkpoint)) is not None:
            _abort(self._options, app_id, batchId)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "only tasks write rows"
    return context


def _property(context: TaskContext, name: str) -> str:
    value: str | None = context.getLocalProperty(name)
    if value is None:
        raise SinkUnusable(
            f"Spark did not pass the task property {name}, which exactly-once needs: use Spark 4.3, or set "
            "deliveryGuarantee to at-least-once"
        )
    return value


def _results(messages: list[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message for message in messages if isinstance(message, TaskResult)]


def _commit(options: SinkOptions, attempt_id: AttemptId, results: list[TaskResult]) -> None:
    what = f"batch {attempt_id.batch_id} of sink {attempt_id.app_id!r}"
    producers = [each.producer for each in results if each.producer is not None]
    is_exactly_once = all(each.is_exactly_once for each in results)
    if is_exactly_once or producers:  # while brokers are upgraded, some tasks meet one that has no sinks yet
        try:
            with Admin(options.admin_settings) as admin:
                admin.commit_sink(
                    attempt_id.app_id, attempt_id.query_id, attempt_id.run_id, attempt_id.batch_id, producers
                )
        except ClientError as error:
            raise without_frames(error, WRITING) from None
    if is_exactly_once:
        was_before = any(each.was_committed for each in results)
        log.info("%s %s, exactly once", what, "was committed earlier" if was_before else "is committed")
    elif options.guarantee is Guarantee.AT_LEAST_ONCE:
        log.info(_AT_LEAST_ONCE, what, "deliveryGuarantee is at-least-once")
    else:
        reason = "not all brokers have sinks" if producers else "the brokers have no sinks"
        log.warning(_AT_LEAST_ONCE, what, f"{reason}, so a retried batch is written twice")


def _abort(options: SinkOptions, app_id: str, batch_id: int, run_id: str | None = None) -> None:
    """Best effort: the next run, or the transaction timeout, aborts what stays open."""
    try:
        with Admin(options.admin_settings) as admin:
            for sink in admin.list_sinks():
                is_ours = sink.batch_id == batch_id if run_id is None else sink.run_id == run_id
                if is_ours and sink.app_id == app_id:
                    admin.abort_sink(app_id, sink.query_id, sink.run_id)
    except UnsupportedByBroker:
        log.debug("the brokers have no sinks, so there is nothing to abort")
    except ClientError as error:
        log.warning(
            "the open attempts of sink %r could not be aborted (the next run of the query aborts them): %s",
            app_id,
            error,
        )


def _query_id(checkpoint: str | None) -> str | None:
    """Read the query id from the checkpoint, if that is on this computer."""
    where = urlsplit(checkpoint or "")
    if checkpoint is None or where.scheme not in ("", "file"):
        return None
    try:
        found = json.loads((Path(where.path) / "metadata").read_text())
    except (OSError, ValueError):
        return None
    query_id = found.get("id")
    return query_id if isinstance(query_id, str) else None


# --- tasks -----------------------------------------------------------------------------------------------


def _write_rows(
    options: SinkOptions, layout: RowLayout, attempt_id: AttemptId, batches: Iterator[pa.RecordBatch]
) -> TaskResult:
    spare_collector()
    try:
        if options.guarantee is Guarantee.AT_LEAST_ONCE:
            return _write_at_least_once(options, layout, attempt_id, batches)
        return _write_attempt(options, layout, attempt_id, batches)
    except ClientError as error:
        raise without_frames(error, WRITING) from None


def _write_attempt(
    options: SinkOptions, layout: RowLayout, attempt_id: AttemptId, batches: Iterator[pa.RecordBatch]
) -> TaskResult:
    with SinkAttempt(dict(options.settings), attempt_id) as attempt:
        state = attempt.join()
        if state is State.UNSUPPORTED and options.guarantee is Guarantee.EXACTLY_ONCE:
            error = UnsupportedByBroker("JOIN_SINK")
            error.advice = (
                "deliveryGuarantee=exactly-once needs Headrace as the broker; or set it to at-least-once."
            )
            raise error
        if state is State.COMMITTED:
            # stateful operators upstream commit their state only if all of their rows are read
            deque(batches, maxlen=0)
            return TaskResult(attempt_id, was_committed=True)
        if state is State.WRITING:
            tables = RecordTables(layout)
            for batch in batches:
                for topic, table in tables.by_topic(batch, time.time_ns() // 1_000_000):
                    attempt.send_arrow(topic, table, **layout.send_arguments)
            return TaskResult(attempt_id, attempt.finish())
    return _write_at_least_once(options, layout, attempt_id, batches)


def _write_at_least_once(
    options: SinkOptions, layout: RowLayout, attempt_id: AttemptId, batches: Iterator[pa.RecordBatch]
) -> TaskResult:
    settings = {name: value for name, value in options.settings.items() if name != "transaction.timeout.ms"}
    pending: deque[TableDelivery] = deque()
    tables = RecordTables(layout)
    with Producer(settings) as producer:
        for batch in batches:
            for topic, table in tables.by_topic(batch, time.time_ns() // 1_000_000):
                pending.append(producer.send_arrow(topic, table, **layout.send_arguments))  # type: ignore[arg-type]
            while pending and pending[0].is_done:
                pending.popleft().result()
        for delivery in pending:
            delivery.get()
    return TaskResult(attempt_id, is_exactly_once=False)
