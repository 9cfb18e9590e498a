"""Lines of the topic `logs` become rows of a Delta table; what is not a line becomes a dead letter."""

from pyspark import pipelines as dp

from headrace.pipelines import expect_or_dead, parse

LINE = "service STRING, level STRING, logged_at TIMESTAMP, took_ms BIGINT, message STRING, stack STRING"
IS_LINE = "_corrupt_record IS NULL AND service IS NOT NULL AND level IS NOT NULL AND took_ms IS NOT NULL"


@dp.table(format="headrace_lake")
@expect_or_dead("is_line", IS_LINE, topic="logs_dead")
def logs():
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load("logs")
    # clocks of services are wrong: time is when the collector received the line
    return parse(records, LINE).selectExpr(
        "to_date(_record.timestamp) AS day", "_record.timestamp AS received_at", "*"
    )
