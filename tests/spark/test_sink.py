"""Writing by `format("headrace")`: what rows become, and what counts when tasks, runs and drivers fail."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.types import LongType, StringType, StructField, StructType

import headrace
from harness.committed import committed_texts
from harness.headrace import Headrace
from harness.spark_queries import await_end
from headrace.client.errors import KafkaError
from headrace.client.producer.sink_attempt import AttemptId
from headrace.client.threads.producer import SinkAttempt
from headrace.protocol.errors import ErrorCode
from headrace.spark.errors import InvalidOption
from headrace.spark.rows import row_layout
from headrace.spark.sink_options import Guarantee, sink_options
from spark.rival import KAFKA

pytestmark = pytest.mark.brief

ON_HEADRACE = pytest.mark.parametrize("broker", [Headrace], indirect=True, scope="session", ids=["headrace"])
ON_KAFKA = pytest.mark.parametrize("broker", [KAFKA], indirect=True, scope="session")

Run = Callable[..., None]


@pytest.fixture
def write(servers: str) -> Callable[..., None]:
    """A batch write; options by name."""

    def save(rows: DataFrame, **options: Any) -> None:
        writer = rows.write.format("headrace").option("kafka.bootstrap.servers", servers).mode("append")
        for name, value in options.items():
            writer = writer.option(name, str(value))
        writer.save()

    return save


@pytest.fixture
def run(servers: str) -> Run:
    """A stream that writes all that is there and ends."""

    def start(rows: DataFrame, checkpoint: Path, **options: Any) -> None:
        writer: DataStreamWriter = rows.writeStream.format("headrace").trigger(availableNow=True)
        options = {"kafka.bootstrap.servers": servers, "checkpointLocation": checkpoint} | options
        for name, value in options.items():
            writer = writer.option(name, str(value))
        query = writer.start()
        await_end(query)

    return start


@pytest.fixture
def committed(servers: str) -> Callable[[str], list[str]]:
    """The values of a topic as a reader of committed records sees them, in order."""
    return partial(committed_texts, servers)


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("CAST(id AS string) AS value")


def texts(count: int) -> list[str]:
    return sorted(map(str, range(count)))


def failing(rows: DataFrame, value: str, *, attempts: int = 99) -> DataFrame:
    """The task that meets a row fails, in its first so many attempts."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            if context.attemptNumber() < attempts and value in batch.column("value").to_pylist():
                yield batch.slice(0, 0)
                raise RuntimeError(f"the task that has {value} fails")
            yield batch

    return rows.mapInArrow(pass_on, rows.schema)


# --- rows ------------------------------------------------------------------------------------------------


@ON_HEADRACE
def test_every_column_has_its_part(
    spark: SparkSession,
    write: Callable[..., None],
    read: Callable[..., DataFrame],
    new_topic: Callable[..., str],
) -> None:
    first, second = new_topic(3), new_topic(3)
    rows = spark.createDataFrame(
        [
            (first, "k", "v", [("h", bytearray(b"1"))], 2, 1_000, 7),
            (second, None, "w", [], 0, None, 8),
            (first, None, None, None, 1, 2_000, 9),
        ],
        "topic string, key string, value string, headers array<struct<key: string, value: binary>>, "
        "partition int, at long, ignored int",
    ).selectExpr("*", "timestamp_millis(at) AS timestamp")
    before_ms = time.time_ns() // 1_000_000
    write(rows, includeHeaders=True)  # of Spark's sink; here a column is enough
    found = {
        (row.topic, row.partition): row
        for topic in (first, second)
        for row in read(topic, includeHeaders=True).collect()
    }
    assert set(found) == {(first, 2), (second, 0), (first, 1)}
    whole = found[first, 2]
    assert (bytes(whole.key), bytes(whole.value), whole.timestamp.timestamp()) == (b"k", b"v", 1.0)
    assert [(header.key, bytes(header.value)) for header in whole.headers] == [("h", b"1")]
    assert found[first, 1].value is None
    assert found[second, 0].timestamp.timestamp() * 1000 >= before_ms


@ON_HEADRACE
def test_the_option_topic_wins(
    spark: SparkSession,
    write: Callable[..., None],
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
) -> None:
    topic = new_topic()
    write(numbers(spark, 3).selectExpr("value", "'elsewhere' AS topic"), topic=topic)
    assert committed(topic) == texts(3)


# --- batches ---------------------------------------------------------------------------------------------


@ON_HEADRACE
def test_a_batch_counts_whole_or_not_at_all(
    spark: SparkSession,
    write: Callable[..., None],
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    admin: headrace.Admin,
) -> None:
    topic = new_topic(2)
    with pytest.raises(PythonException, match="the task that has 7 fails"):
        write(failing(numbers(spark, 10), "7"), topic=topic)
    assert committed(topic) == []
    assert [sink for sink in admin.list_sinks() if sink.open_attempts] == []
    write(failing(numbers(spark, 10), "7", attempts=1), topic=topic)  # a task that is tried again
    assert committed(topic) == texts(10)


@ON_HEADRACE
def test_a_batch_with_a_number_is_written_once(
    spark: SparkSession,
    write: Callable[..., None],
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
) -> None:
    topic = new_topic(2)
    for _ in range(2):
        write(numbers(spark, 5), topic=topic, txnAppId=f"etl-{topic}", txnVersion=3)
    assert committed(topic) == texts(5)
    write(numbers(spark, 5), topic=topic, txnAppId=f"etl-{topic}", txnVersion=4)
    assert committed(topic) == sorted(texts(5) * 2)


# --- streams ---------------------------------------------------------------------------------------------


@pytest.fixture
def source(
    new_topic: Callable[..., str], fill: Callable[..., None], stream: Callable[..., DataFrame]
) -> DataFrame:
    """Twenty records in two partitions, read in batches of eight."""
    topic = new_topic(2)
    fill(topic, 10, (0, 1))
    rows = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    return rows.selectExpr("concat(partition, '/', CAST(value AS string)) AS value")


ALL = sorted(f"{partition}/value-{number}" for partition in (0, 1) for number in range(10))


@ON_HEADRACE
def test_a_stream_writes_each_record_once(
    source: DataFrame,
    run: Run,
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    admin: headrace.Admin,
    tmp_path: Path,
) -> None:
    topic, checkpoint = new_topic(3), tmp_path / "checkpoint"
    run(source, checkpoint, topic=topic)
    assert committed(topic) == ALL
    run(source, checkpoint, topic=topic)
    assert committed(topic) == ALL
    # the driver died before it wrote down that the last batch was done, and writes it again with other tasks
    last = max(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit())
    forget_commit(checkpoint, last)
    run(source.repartition(3), checkpoint, topic=topic)
    assert committed(topic) == ALL
    (sink,) = [each for each in admin.list_sinks() if each.app_id in (checkpoint / "metadata").read_text()]
    assert (sink.committed_batch_id, sink.open_attempts) == (last, 0)


def forget_commit(checkpoint: Path, batch: int) -> None:
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


@ON_HEADRACE
def test_batches_by_hand_count_once_by_their_numbers(
    source: DataFrame,
    write: Callable[..., None],
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic, checkpoint = new_topic(2), tmp_path / "checkpoint"

    def by_hand(rows: DataFrame, batch: int) -> None:
        write(rows, topic=topic, txnAppId=f"by-hand-{topic}", txnVersion=batch)

    def run_once() -> None:
        query = source.writeStream.foreachBatch(by_hand).option("checkpointLocation", str(checkpoint))
        await_end(query.trigger(availableNow=True).start())

    run_once()
    forget_commit(checkpoint, 2)
    run_once()
    assert committed(topic) == ALL


@ON_HEADRACE
def test_tasks_that_fail_leave_nothing_behind(
    source: DataFrame,
    run: Run,
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    admin: headrace.Admin,
    tmp_path: Path,
) -> None:
    """A query fails in the middle of a batch; the next run has fewer tasks, and tries one of them twice."""
    topic, checkpoint = new_topic(2), tmp_path / "checkpoint"
    with pytest.raises(StreamingQueryException, match="the task that has 1/value-5 fails"):
        run(failing(source, "1/value-5"), checkpoint, topic=topic)
    assert [sink for sink in admin.list_sinks() if sink.open_attempts] == []
    run(failing(source.coalesce(1), "1/value-5", attempts=1), checkpoint, topic=topic)
    assert committed(topic) == ALL


@ON_HEADRACE
def test_a_second_driver_fences_the_first(
    source: DataFrame,
    run: Run,
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    admin: headrace.Admin,
    servers: str,
    tmp_path: Path,
) -> None:
    topic, checkpoint, app_id = new_topic(2), tmp_path / "checkpoint", f"app-{tmp_path.name}"
    run(source, checkpoint, topic=topic, txnAppId=app_id)
    (before,) = [each for each in admin.list_sinks() if each.app_id == app_id]
    forget_commit(checkpoint, before.committed_batch_id or 0)
    shutil.copytree(checkpoint, tmp_path / "other")
    run(source, tmp_path / "other", topic=topic, txnAppId=app_id)
    zombie = AttemptId(app_id, before.query_id, before.run_id, (before.committed_batch_id or 0) + 1, 0, 0)
    with SinkAttempt(servers, zombie) as attempt, pytest.raises(KafkaError, match="has taken over") as raised:
        attempt.join()
    assert raised.value.code == ErrorCode.PRODUCER_FENCED
    assert committed(topic) == ALL


@ON_HEADRACE
def test_a_new_checkpoint_is_another_query(
    source: DataFrame,
    run: Run,
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    admin: headrace.Admin,
    tmp_path: Path,
) -> None:
    topic, app_id = new_topic(2), f"app-{tmp_path.name}"
    run(source, tmp_path / "first", topic=topic, txnAppId=app_id)
    with pytest.raises(StreamingQueryException, match=re.escape(f"headrace cluster sinks reset {app_id}")):
        run(source, tmp_path / "second", topic=topic, txnAppId=app_id)
    assert committed(topic) == ALL
    admin.reset_sink(app_id)
    run(source, tmp_path / "second", topic=topic, txnAppId=app_id)
    assert committed(topic) == sorted(ALL * 2)


@ON_HEADRACE
def test_a_batch_may_take_longer_than_its_timeout(
    source: DataFrame,
    run: Run,
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """One task is done at once and waits for the other, which is heard of all the time."""
    topic = new_topic(2)

    def hesitate(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if (context.getLocalProperty("streaming.sql.batchId"), context.partitionId()) == ("0", 1):
            time.sleep(4)

    options = {"kafka.transaction.timeout.ms": 2_000}
    run(source.mapInArrow(hesitate, source.schema), tmp_path / "checkpoint", topic=topic, **options)
    assert committed(topic) == ALL


# --- less --------------------------------------------------------------------------------------------------


@ON_KAFKA
def test_against_kafka_it_is_at_least_once(
    spark: SparkSession,
    write: Callable[..., None],
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
) -> None:
    topic = new_topic(2)
    write(numbers(spark, 5), topic=topic)
    assert committed(topic) == texts(5)
    with pytest.raises(PythonException, match="does not support JOIN_SINK"):
        write(numbers(spark, 5), topic=topic, deliveryGuarantee="exactly-once")
    assert committed(topic) == texts(5)


@ON_HEADRACE
def test_at_least_once_if_that_is_wanted(
    spark: SparkSession,
    write: Callable[..., None],
    committed: Callable[[str], list[str]],
    new_topic: Callable[..., str],
    admin: headrace.Admin,
) -> None:
    topic = new_topic(2)
    before = admin.list_sinks()
    write(numbers(spark, 5), topic=topic, deliveryGuarantee="at-least-once")
    assert (committed(topic), admin.list_sinks()) == (texts(5), before)


# --- options -----------------------------------------------------------------------------------------------

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("options", "is_stream", "said"),
    [
        ({}, True, "kafka.bootstrap.servers is missing"),
        ({**SERVERS, "topik": "t"}, True, "did you mean topic"),
        ({**SERVERS, "topic": ""}, True, "topic is empty"),
        ({**SERVERS, "topic": "t", "path": "t"}, False, "both given"),
        ({**SERVERS, "txnVersion": "1"}, True, "for batch writes"),
        ({**SERVERS, "txnVersion": "1"}, False, "txnAppId is missing"),
        ({**SERVERS, "txnAppId": "a"}, False, "txnVersion is missing"),
        ({**SERVERS, "txnAppId": "a", "txnVersion": "one"}, False, "must be a whole number"),
        ({**SERVERS, "txnAppId": "a", "txnVersion": "-1"}, False, "must be at least 0"),
        ({**SERVERS, "txnAppId": ""}, True, "txnAppId is empty"),
        ({**SERVERS, "deliveryGuarantee": "maybe"}, True, "exactly-once or at-least-once"),
        ({**SERVERS, "kafka.transactional.id": "x"}, True, "use txnAppId"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], is_stream: bool, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        sink_options(options, is_stream=is_stream, overwrite=False)


def test_options_that_do() -> None:
    given = {**SERVERS, "TXNAPPID": "app", "checkpointLocation": "/c", "DeliveryGuarantee": "Exactly-Once"}
    options = sink_options(given, is_stream=True, overwrite=False)
    assert (options.app_id, options.guarantee) == ("app", Guarantee.EXACTLY_ONCE)
    assert (options.checkpoint, options.topic) == ("/c", None)
    with pytest.raises(InvalidOption, match="cannot be overwritten"):
        sink_options(SERVERS, is_stream=False, overwrite=True)


def test_rows_that_are_no_records() -> None:
    def schema(**columns: Any) -> StructType:
        return StructType([StructField(name, kind) for name, kind in columns.items()])

    with pytest.raises(InvalidOption, match="to_json"):
        row_layout(schema(key=StringType()), "t")
    with pytest.raises(InvalidOption, match="a column topic"):
        row_layout(schema(value=StringType()), None)
    with pytest.raises(InvalidOption, match="column value has type bigint"):
        row_layout(schema(value=LongType()), "t")
