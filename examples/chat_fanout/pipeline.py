"""Comments per second and chat, for the counter beside a live video, and what the moderator has hidden."""

from pyspark import pipelines as dp
from pyspark.sql import functions as F

from headrace.pipelines import parse

MESSAGE = "chat STRING, person STRING, text STRING, sent_at_ms BIGINT"
LATE = "10 seconds"  # a second is final when messages are that much further


@dp.temporary_view
def moderated():
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load("moderated")
    sent = parse(records, MESSAGE).selectExpr("*", "timestamp_millis(sent_at_ms) AS sent_at")
    return sent.withWatermark("sent_at", LATE)


@dp.table(format="headrace_lake")
def comments_per_second():
    seconds = F.window("sent_at", "1 second").alias("window")
    counted = spark.readStream.table("moderated").groupBy("chat", seconds).agg(F.count("*").alias("comments"))
    return counted.selectExpr("chat", "window.start AS second", "comments")


@dp.table(format="headrace_lake")
def hidden_words():
    hidden = spark.readStream.table("moderated").where("contains(text, '***')")
    return hidden.select("chat", "person", "text", "sent_at")
