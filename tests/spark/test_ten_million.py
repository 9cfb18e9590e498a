"""Ten million records in batches of many sizes and of every codec: Spark finds each of them, nothing else."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

import headrace

RECORDS = 10_000_000
PARTITIONS = 4
# Each writes an equal part of each partition: its codec, and how large its batches are.
WRITERS = {"none": 10_000, "gzip": 100_000, "snappy": 30_000, "lz4": 300_000, "zstd": 1_000_000}
ROWS = RECORDS // PARTITIONS // len(WRITERS)

# A record tells its offset by its value, which is of one to seven times as many bytes, and by its timestamp.
VALUE = "repeat(CAST({offset} AS string), CAST(1 + {offset} % 7 AS int))"
FOUND = (
    "count(*) AS records",
    "min(offset) AS first",
    "max(offset) AS last",
    "sum(offset) AS total",
    "bit_xor(xxhash64(offset, value, timestamp)) AS checksum",
)


def rows(first: int) -> pa.Table:
    offsets = pa.array(range(first, first + ROWS), pa.int64())
    times = pc.add(1, pc.subtract(offsets, pc.multiply(pc.divide(offsets, 7), 7)))
    return pa.table({"value": pc.binary_repeat(offsets.cast(pa.string()), times), "timestamp": offsets})


def summed(frame: DataFrame) -> list[tuple[int, ...]]:
    """Of each partition: how many records, from where to where, and a checksum of their contents."""
    values = frame.selectExpr(
        "partition", "offset", "CAST(value AS string) AS value", "unix_millis(timestamp) AS timestamp"
    )
    return sorted(tuple(row) for row in values.groupBy("partition").agg(*map(expr, FOUND)).collect())


def test_each_of_ten_million_records_is_read_once(spark, servers, new_topic, read):
    topic = new_topic(PARTITIONS)
    for part, (codec, size) in enumerate(WRITERS.items()):
        settings = {"compression.type": codec, "batch.size": size, "headrace.batch.size.max": size}
        settings["compression.gzip.level"] = 1  # a quarter of the time of its default
        table = rows(part * ROWS)
        with headrace.Producer({"bootstrap.servers": servers, **settings}) as producer:
            sent = [
                producer.send_arrow(topic, table, partition=partition, timestamp="timestamp")
                for partition in range(PARTITIONS)
            ]
            assert [delivery.get().records for delivery in sent] == [ROWS] * PARTITIONS
    wanted = spark.range(RECORDS // PARTITIONS).crossJoin(spark.range(PARTITIONS).toDF("partition"))
    wanted = wanted.selectExpr(
        "CAST(partition AS int) AS partition",
        "id AS offset",
        f"{VALUE.format(offset='id')} AS value",
        "timestamp_millis(id) AS timestamp",
    )
    found = summed(read(topic))
    assert [row[1:4] for row in found] == [(RECORDS // PARTITIONS, 0, RECORDS // PARTITIONS - 1)] * PARTITIONS
    assert found == summed(wanted)
