"""Verdicts as a Delta table and the leaderboard from it, with Spark.

    python examples/judge/leaderboard.py --table lake/verdicts --checkpoint leaderboard.checkpoint

The stream adds each verdict to the table exactly once. The step `leaderboard` is a plain function of the
table, so the board can be computed again at any time, also as of an earlier version of the table.
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace.spark

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
VERDICT = (
    "submission BIGINT NOT NULL, team STRING NOT NULL, problem STRING NOT NULL, verdict STRING NOT NULL, "
    "sent_at_ms BIGINT NOT NULL"
)
START_MS = 1_767_225_600_000  # as in contest.py


def leaderboard(verdicts: DataFrame) -> DataFrame:
    """Team, problems solved and penalty in minutes, the best first."""
    solved = (
        verdicts.where("verdict = 'accepted'")
        .groupBy("team", "problem")
        .agg(F.min("sent_at_ms").alias("solved_at_ms"))
    )
    tries = verdicts.join(solved, ["team", "problem"]).where("sent_at_ms <= solved_at_ms")
    per_problem = tries.groupBy("team", "problem", "solved_at_ms").agg((F.count("*") - 1).alias("failed"))
    minutes = F.floor((F.col("solved_at_ms") - START_MS) / 60_000)
    return (
        per_problem.groupBy("team")
        .agg(F.count("*").alias("solved"), F.sum(minutes + 20 * F.col("failed")).alias("penalty"))
        .orderBy(F.desc("solved"), "penalty", "team")
    )


def store_verdicts(spark: SparkSession, servers: str, table: str, checkpoint: str) -> None:
    """Adds the verdicts that are in the topic and not in the table."""
    verdicts = (
        spark.readStream.format("headrace")
        .schema(VERDICT)
        .option("kafka.bootstrap.servers", servers)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .load("verdicts")
    )
    query = (
        verdicts.writeStream.format("headrace_lake")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description="Stores verdicts in a Delta table, and prints the board.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--table", required=True, help="the directory of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="the directory for the stream's progress")
    chosen = parser.parse_args()

    config = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
    spark = headrace.spark.session("leaderboard", servers=chosen.servers, config=config)
    store_verdicts(spark, chosen.servers, chosen.table, chosen.checkpoint)
    leaderboard(spark.read.format("headrace_lake").load(chosen.table)).show(20)
    spark.stop()


if __name__ == "__main__":
    main()
