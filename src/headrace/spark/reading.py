"""The reading task: it fetches one range of offsets and hands it to Spark as Arrow batches.

A task joins no group and commits nothing: Spark keeps the progress. If the topic was deleted and created
again, the task fails at the first record. If records no longer exist, it fails or skips them, as
failOnDataLoss says.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.ids import id_text
from headrace.client.clock import clock, wall_ms
from headrace.client.consumer.arrow import table_of
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, KafkaError, LogTruncation, TimedOut
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.consumer import consumer_settings
from headrace.client.settings.keys import consumer_keys
from headrace.client.settings.network import network_settings
from headrace.client.threads.driver import Driver
from headrace.protocol.errors import ErrorCode
from headrace.records._columns import Columns
from headrace.spark.errors import DataLost, TopicRecreated
from headrace.spark.formats import HEADERS
from headrace.spark.ranges import Range

if TYPE_CHECKING:
    import pyarrow as pa

CLOSE_S = 1.0

# Kafka's columns by Spark's names, in the order of `table_of`.
_TABLE_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", HEADERS)

log = logging.getLogger("headrace.spark")


class ReadTask(NamedTuple):
    """Sent from the planner to an executor."""

    range: Range
    topic_id: str
    settings: dict[str, str]
    poll_timeout_s: float
    fails_on_data_loss: bool


def task_settings(settings: Mapping[str, str], isolation_level: str) -> dict[str, str]:
    """Return the consumer settings of a task."""
    return {
        **settings,
        "isolation.level": isolation_level,
        "auto.offset.reset": "none",
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
    }


def read_range(task: ReadTask) -> Iterator[Columns]:
    """Yield the records of the range in order; the last batch may contain records after its end."""
    at, position, end = task.range
    with _consumer(task) as (session, driver):
        is_checked = False
        while position < end:
            columns = Columns()
            try:
                _wait(session, driver, columns, task)
            except (KafkaError, LogTruncation) as error:
                position = _after_loss(session, driver, task, position, error)
                continue
            if not is_checked:
                _check_topic_id(session, task)
                is_checked = True
            with driver.lock:
                position = session.position(at) or position
            if columns.row_count:
                yield columns


@contextmanager
def _consumer(task: ReadTask) -> Iterator[tuple[ConsumerSession, Driver]]:
    configuration = Configuration(consumer_keys(), task.settings)
    session = ConsumerSession(consumer_settings(configuration), random.SystemRandom(), wall_ms=wall_ms)
    driver = Driver(session, network_settings(configuration), name="headrace-spark")
    session.assign(clock(), {task.range.partition: task.range.start})
    session.fetch_until(task.range.partition, task.range.end)
    driver.start()
    try:
        yield session, driver
        with driver.lock:  # else the broker keeps the fetch session until it expires
            closed = session.close(clock(), CLOSE_S)
            driver.wake()
            driver.wait_until(lambda: closed.is_done, CLOSE_S)
    finally:
        driver.close()


def _wait(session: ConsumerSession, driver: Driver, columns: Columns, task: ReadTask) -> None:
    """Wait until something was fetched, which may be control records or aborted ones only."""
    until = clock() + task.poll_timeout_s
    with driver.lock:
        while True:
            for event in session.take_events():
                log.warning("%s", event)
            if session.take_columns(clock(), columns):
                if session.needs_turn:
                    driver.wake()
                return
            if session.needs_turn:
                driver.wake()
            if not driver.wait_until(lambda: session.has_news, until - clock()):
                raise TimedOut(
                    f"partition {task.range.partition}: nothing was fetched from offset "
                    f"{session.position(task.range.partition)} on for {task.poll_timeout_s:g} s: check that "
                    "its leader is running, or raise kafkaConsumer.pollTimeoutMs"
                )


def _check_topic_id(session: ConsumerSession, task: ReadTask) -> None:
    topic = session.cluster.topics.get(task.range.partition.topic)
    if topic is None or not task.topic_id:
        return
    found = id_text(topic.topic_id)
    if found != task.topic_id:
        raise TopicRecreated(recreated_text(task.range.partition.topic, task.topic_id, found))


def recreated_text(topic: str, before: str, now: str) -> str:
    return (
        f"topic {topic!r} was deleted and created again: its id was {before} and is now {now}. Offsets of "
        "the old topic are invalid in the new one; use a new checkpoint to read the new topic from its start."
    )


def _after_loss(
    session: ConsumerSession, driver: Driver, task: ReadTask, position: int, error: ClientError
) -> int:
    """Return the offset after the lost records; raise if failOnDataLoss is set, or nothing was lost."""
    at = task.range.partition
    if isinstance(error, KafkaError) and error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise error
    _check_topic_id(session, task)
    with driver.lock:
        pending = session.beginning_offsets(clock(), [at], task.poll_timeout_s)
        driver.wake()
        driver.wait_until(lambda: pending.is_done, task.poll_timeout_s)
        first = pending.result()[at]
    lost_to = min(max(first, position), task.range.end)
    if lost_to == position:  # the log was truncated: its end was lost, not its start
        lost_to = task.range.end
    text = f"offsets {position} to {lost_to - 1} of partition {at} were deleted during the read: {error}"
    if task.fails_on_data_loss:
        raise DataLost(f"{text}. Set failOnDataLoss to false to continue without them.") from error
    log.warning("%s", text)
    if lost_to < task.range.end:
        with driver.lock:
            session.seek(clock(), at, lost_to)
            driver.wake()
    return lost_to


# --- Arrow -----------------------------------------------------------------------------------------------


def kafka_table(columns: Columns, end_offset: int) -> pa.Table:
    """Return the records of one partition with offsets below `end_offset`, by Spark's column names."""
    table = table_of(columns)
    rows = table.num_rows
    if rows and table["offset"][rows - 1].as_py() >= end_offset:
        table = table.slice(0, _count_below(columns, end_offset))
    return table.rename_columns(list(_TABLE_COLUMNS))


def _count_below(columns: Columns, end_offset: int) -> int:
    low, high = 0, columns.row_count
    offsets = columns.offsets
    while low < high:
        middle = (low + high) // 2
        if offsets[middle] < end_offset:
            low = middle + 1
        else:
            high = middle
    return low


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
