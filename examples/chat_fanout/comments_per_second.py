"""Comments per second and chat, for the counter beside a live video: a step for Spark.

The step knows nothing about topics: it is the same for a stream and for a whole topic at once (`spark.read`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MESSAGE = "chat STRING NOT NULL, sent_at_ms BIGINT NOT NULL"
WATERMARK = "5 seconds"  # partitions may be read that far apart


def comments_per_second(messages: DataFrame) -> DataFrame:
    sent = messages.select("chat", F.timestamp_millis("sent_at_ms").alias("sent_at"))
    counted = (
        sent.withWatermark("sent_at", WATERMARK)
        .groupBy("chat", F.window("sent_at", "1 second").alias("window"))
        .agg(F.count("*").alias("comments"))
    )
    return counted.select("chat", F.col("window.start").alias("second"), "comments")
