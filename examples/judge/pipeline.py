"""Verdicts become a Delta table; the leaderboard is a view of it."""

from pyspark import pipelines as dp

from headrace.pipelines import expect_or_fail, parse

VERDICT = "submission BIGINT, team STRING, problem STRING, verdict STRING, sent_at_ms BIGINT"


@dp.table(format="headrace_lake")
@expect_or_fail("is_verdict", "verdict IS NOT NULL")
def verdicts():
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load("verdicts")
    return parse(records, VERDICT)
