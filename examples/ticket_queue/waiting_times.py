"""How long fans wait for an answer, per show and minute: a step for Spark, and a stream that runs it.

    python examples/ticket_queue/waiting_times.py --checkpoint waiting.checkpoint --available-now

The step knows nothing about topics: it is the same for a stream and for a whole topic at once (`spark.read`).
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headrace
import headrace.spark

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
TICKETS, WAITING = "tickets", "waiting_times"
TICKET = "show STRING NOT NULL, asked_at_ms BIGINT NOT NULL, answered_at_ms BIGINT NOT NULL"
WATERMARK = "1 minute"  # partitions may be read that far apart


def waiting_times(tickets: DataFrame) -> DataFrame:
    """Answers and waiting times in seconds, by show and by minute of the answer."""
    waited_s = (F.col("answered_at_ms") - F.col("asked_at_ms")) / 1000
    answered = tickets.select(
        "show", waited_s.alias("waited_s"), F.timestamp_millis("answered_at_ms").alias("answered_at")
    )
    per_minute = (
        answered.withWatermark("answered_at", WATERMARK)
        .groupBy("show", F.window("answered_at", "1 minute").alias("window"))
        .agg(
            F.count("*").alias("answers"),
            F.avg("waited_s").alias("average_s"),
            F.percentile_approx("waited_s", 0.99).alias("p99_s"),
        )
    )
    return per_minute.select("show", F.col("window.start").alias("minute"), "answers", "average_s", "p99_s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Waiting times per show and minute, as a topic.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--checkpoint", required=True, help="the directory for progress and state")
    parser.add_argument("--available-now", action="store_true", help="read what is there, then end")
    chosen = parser.parse_args()

    with headrace.Admin(chosen.servers) as admin:
        if WAITING not in {topic.name for topic in admin.list_topics()}:
            admin.create_topic(WAITING, partitions=1)
    config = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
    spark = headrace.spark.session("waiting-times", servers=chosen.servers, config=config)
    tickets = (
        spark.readStream.format("headrace")
        .schema(TICKET)
        .option("kafka.bootstrap.servers", chosen.servers)
        .option("subscribe", TICKETS)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .load()
    )
    rows = waiting_times(tickets)
    records = rows.select(F.col("show").alias("key"), F.to_json(F.struct(*rows.columns)).alias("value"))
    query = (
        records.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", chosen.servers)
        .option("topic", WAITING)
        .option("txnAppId", WAITING)
        .option("checkpointLocation", chosen.checkpoint)
        .trigger(**({"availableNow": True} if chosen.available_now else {"processingTime": "5 seconds"}))
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
