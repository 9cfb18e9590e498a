"""`format("headrace_lake")`: DataFrames to Delta tables and back, each batch once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from harness.spark_queries import await_end
from spark.frames import plain

pytestmark = pytest.mark.brief


def rows(spark: SparkSession, table: Path) -> list[dict[str, object]]:
    found = spark.read.format("headrace_lake").load(str(table)).collect()
    return sorted((plain(row) for row in found), key=repr)


def test_a_batch_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    frame = spark.createDataFrame(
        [(1, "a", [1.5]), (2, None, None)], "id int, name string, list array<double>"
    )
    frame.repartition(2).write.format("headrace_lake").mode("append").save(str(table))
    expected = [{"id": 1, "name": "a", "list": [1.5]}, {"id": 2, "name": None, "list": None}]
    assert rows(spark, table) == expected
    numbered = frame.write.format("headrace_lake").mode("append")
    for _ in range(2):
        numbered.option("txnAppId", "job").option("txnVersion", 1).save(str(table))
    assert rows(spark, table) == sorted(expected * 2, key=repr)


def test_wrong_use_is_told(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1,)], "id int")
    writer = frame.write.format("headrace_lake")
    with pytest.raises(PySparkException, match="only appends"):
        writer.mode("overwrite").save(str(tmp_path / "table"))
    with pytest.raises(PySparkException, match=r"(?i)unknown option txnAppld; did you mean txnAppId"):
        writer.mode("append").option("txnAppld", "x").save(str(tmp_path / "table"))
    with pytest.raises(PySparkException, match="there is no Delta table"):
        spark.read.format("headrace_lake").load(str(tmp_path / "nothing"))


def test_a_stream_adds_each_micro_batch_once(
    spark: SparkSession,
    stream: Callable[..., DataFrame],
    new_topic: Callable[..., str],
    fill: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def run() -> None:
        frame = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
        query = (
            frame.selectExpr("partition", "offset", "CAST(value AS string) AS value")
            .writeStream.format("headrace_lake")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(table))
        )
        await_end(query)

    fill(topic, 6, (0, 1))
    run()
    expected = sorted(
        ({"partition": at, "offset": n, "value": f"value-{n}"} for at in (0, 1) for n in range(6)), key=repr
    )
    assert rows(spark, table) == expected
    run()
    assert rows(spark, table) == expected
    # a kill between the table's commit and Spark's own: the last micro-batch is written again
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert rows(spark, table) == expected
