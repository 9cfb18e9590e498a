"""Orders joined with payments by Spark: a join of two streams, bounded by watermarks, into a Delta table.

    python examples/payments/paid_orders.py --table lake/paid_orders --checkpoint paid.checkpoint

The step `paid_orders` knows nothing about topics: it is the same for streams and for whole topics at once.
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace.spark

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
ORDER = "order STRING NOT NULL, cents BIGINT NOT NULL, ordered_at_ms BIGINT NOT NULL"
PAYMENT = "payment STRING NOT NULL, order STRING NOT NULL, cents BIGINT NOT NULL, paid_at_ms BIGINT NOT NULL"
DELAY = "15 minutes"  # a second report of a payment, or the other topic, may be that far behind


def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Orders that were paid within an hour, once each."""
    ordered = orders.select("order", F.timestamp_millis("ordered_at_ms").alias("ordered_at")).withWatermark(
        "ordered_at", DELAY
    )
    paid = (
        payments.select(
            F.col("order").alias("paid_order"),
            "payment",
            "cents",
            F.timestamp_millis("paid_at_ms").alias("paid_at"),
        )
        .withWatermark("paid_at", DELAY)
        .dropDuplicatesWithinWatermark(["payment"])
    )
    in_time = F.expr(
        "order = paid_order AND paid_at >= ordered_at AND paid_at <= ordered_at + INTERVAL 1 HOUR"
    )
    return ordered.join(paid, in_time).select("order", "payment", "cents", "ordered_at", "paid_at")


def read(spark: SparkSession, servers: str, topic: str, schema: str) -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .schema(schema)
        .option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .load(topic)
    )


def store(spark: SparkSession, servers: str, table: str, checkpoint: str) -> None:
    """Adds the orders that were paid since the last time."""
    rows = paid_orders(read(spark, servers, "orders", ORDER), read(spark, servers, "payments", PAYMENT))
    query = (
        rows.writeStream.format("headrace_lake")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description="Joins orders with payments into a Delta table.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--table", required=True, help="the directory of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="the directory for progress and state")
    chosen = parser.parse_args()

    config = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
    spark = headrace.spark.session("paid-orders", servers=chosen.servers, config=config)
    store(spark, chosen.servers, chosen.table, chosen.checkpoint)
    print(f"{spark.read.format('headrace_lake').load(chosen.table).count()} orders were paid in time")
    spark.stop()


if __name__ == "__main__":
    main()
