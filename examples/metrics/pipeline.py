"""Samples of counters and gauges are rolled up to 10 seconds and to a minute, as Delta tables."""

from pyspark import pipelines as dp
from pyspark.sql import functions as F

from headrace.pipelines import deduplicate, parse

SAMPLE = "host STRING, metric STRING, number BIGINT, value BIGINT, at TIMESTAMP"
LATE = "1 minute"  # a window is final when samples are that much further


def samples(topic):
    """Each sample once: with acks=1 a producer that gets no answer sends it again."""
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load(topic)
    return deduplicate(parse(records, SAMPLE), "host", "metric", "number", time="at", within=LATE)


def rolled_up(width):
    both = samples("counters").union(samples("gauges"))
    windows = both.groupBy("host", "metric", F.window("at", width).alias("window")).agg(
        F.count("*").alias("samples"),
        F.sum("value").alias("total"),
        F.min("value").alias("lowest"),
        F.max("value").alias("highest"),
        F.max("number").alias("last_number"),
    )
    return windows.selectExpr(
        "host", "metric", "window.start AS start", "samples", "total", "lowest", "highest", "last_number"
    )


@dp.table(format="headrace_lake")
def rollups_10s():
    return rolled_up("10 seconds")


@dp.table(format="headrace_lake")
def rollups_1m():
    return rolled_up("1 minute")
