"""`option("history", TABLE)`: Spark reads a lake table and its topic as one, in batch and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace
from harness.spark_queries import await_end
from headrace.lake.copying import Copier
from headrace.lake.enabling import enable
from headrace.lake.formats import table_at
from headrace.lake.topic import LakeTopic

pytestmark = pytest.mark.brief


def test_a_table_and_its_topic_are_one(
    spark: SparkSession,
    servers: str,
    admin: headrace.Admin,
    producer: headrace.Producer,
    tmp_path: Path,
) -> None:
    name, table = f"history-{tmp_path.name}", tmp_path / "table"
    admin.create_topic(name, partitions=1)

    def write(numbers: range) -> None:
        for number in numbers:
            producer.send(name, b"%d" % number)
        producer.flush()

    write(range(20))
    topic = LakeTopic(admin, {"bootstrap.servers": servers}, name)
    lake = table_at(table)
    enable(lake, topic)
    Copier(lake, topic, offsets_per_commit=7).copy_available()
    write(range(20, 25))
    admin.delete_records({(name, 0): 18})

    def frame(reader: object) -> DataFrame:
        return (
            reader.format("headrace")  # type: ignore[attr-defined]
            .option("kafka.bootstrap.servers", servers)
            .option("history", str(table))
            .load(name)
            .selectExpr("CAST(value AS string) AS value")
        )

    def values(rows: Callable[[], list[object]]) -> list[int]:
        return sorted(int(row["value"]) for row in rows())  # type: ignore[index]

    assert values(frame(spark.read).collect) == list(range(25))
    results, checkpoint = str(tmp_path / "results"), str(tmp_path / "checkpoint")
    for last in (25, 28):
        query = (
            frame(spark.readStream)
            .writeStream.format("headrace_lake")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(results)
        )
        await_end(query)
        read = spark.read.format("headrace_lake").load(results)
        assert values(read.collect) == list(range(last))
        write(range(25, 28))
