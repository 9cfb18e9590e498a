"""Counts ad clicks per ad and minute, exactly once, with plain Structured Streaming.

    headrace up --sample clicks
    python examples/ad_clicks/pipeline.py --checkpoints ad-clicks.checkpoints

It reads `clicks` and `impressions` and writes `clicks_per_minute`, `clicks_rejected` (late clicks, with the
reason in a header) and `clicks_dead` (records that are not clicks or impressions). The rules are in steps.py.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import steps
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

import headrace
import headrace.spark

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
COUNTS, REJECTED, DEAD = "clicks_per_minute", "clicks_rejected", "clicks_dead"
PARTITIONS = 3

# State is kept per shuffle partition; with few of them small micro-batches are fast.
SETTINGS = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}

# Required fields are NOT NULL: a record without one is not a click, and becomes a dead letter.
CLICK = (
    "click STRING NOT NULL, impression STRING NOT NULL, ad STRING NOT NULL, user STRING NOT NULL, "
    "clicked_at TIMESTAMP NOT NULL, _timestamp TIMESTAMP"
)
IMPRESSION = "impression STRING NOT NULL, ad STRING NOT NULL, shown_at TIMESTAMP NOT NULL"


def run(
    spark: SparkSession, servers: str, checkpoints: Path, *, trigger: dict[str, Any]
) -> list[StreamingQuery]:
    """Starts both queries; `trigger` is what DataStreamWriter.trigger takes."""
    create_topics(servers)

    def read(topic: str, schema: str, group: str) -> DataStreamReader:
        return (
            spark.readStream.format("headrace")
            .schema(schema)
            .option("kafka.bootstrap.servers", servers)
            .option("kafka.group.id", group)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("valueFormat", "json")
        )

    def write(records: DataFrame, topic: str, name: str) -> StreamingQuery:
        return (
            records.writeStream.format("headrace")
            .queryName(name)
            .option("kafka.bootstrap.servers", servers)
            .option("topic", topic)
            .option("txnAppId", name)
            .option("checkpointLocation", str(checkpoints / name))
            .trigger(**trigger)
            .start()
        )

    # Both queries read all clicks; those that are none are written to the dead letters by the second alone.
    clicks = read("clicks", CLICK, "ad-clicks").option("mode", "DROPMALFORMED").load()
    impressions = read("impressions", IMPRESSION, "ad-clicks").option("deadLetterTopic", DEAD).load()
    counts = steps.clicks_per_minute(clicks, impressions)

    same_clicks = read("clicks", CLICK, "ad-clicks-rejected").option("deadLetterTopic", DEAD).load()
    rejected = steps.late(same_clicks)

    return [
        write(counts_as_records(counts), COUNTS, "ad-clicks"),
        write(rejected_as_records(rejected, "late"), REJECTED, "ad-clicks-rejected"),
    ]


def counts_as_records(counts: DataFrame) -> DataFrame:
    return counts.select(
        F.col("ad").alias("key"), F.to_json(F.struct("ad", "minute", "clicks")).alias("value")
    )


def rejected_as_records(clicks: DataFrame, reason: str) -> DataFrame:
    header = F.struct(F.lit("reason").alias("key"), F.encode(F.lit(reason), "UTF-8").alias("value"))
    click = F.struct("click", "impression", "ad", "user", "clicked_at")
    return clicks.select(
        F.col("impression").alias("key"),
        F.to_json(click).alias("value"),
        F.array(header).alias("headers"),
        F.col("_timestamp").alias("timestamp"),
    )


def create_topics(servers: str) -> None:
    with headrace.Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for name in (COUNTS, REJECTED, DEAD):
            if name not in there:
                admin.create_topic(name, partitions=PARTITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts ad clicks per ad and minute, exactly once.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument(
        "--checkpoints", type=Path, required=True, help="the directory for progress and state"
    )
    parser.add_argument("--available-now", action="store_true", help="read what is there, then end")
    parser.add_argument(
        "--trigger", default="1 second", help="the interval of micro-batches (default: %(default)s)"
    )
    parser.add_argument("--master", help="where Spark runs (default: all cores of this computer)")
    chosen = parser.parse_args()

    spark = headrace.spark.session("ad-clicks", servers=chosen.servers, master=chosen.master, config=SETTINGS)
    trigger = {"availableNow": True} if chosen.available_now else {"processingTime": chosen.trigger}
    queries = run(spark, chosen.servers, chosen.checkpoints, trigger=trigger)
    print(f"clicks and impressions → {COUNTS}, {REJECTED}, {DEAD}", flush=True)
    if chosen.available_now:
        for query in queries:
            query.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()  # neither ends but by failing, which is raised here
    spark.stop()


if __name__ == "__main__":
    main()
