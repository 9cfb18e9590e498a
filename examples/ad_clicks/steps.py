"""The rules of the ad-click pipeline, each a step from DataFrame to DataFrame.

    clicks ─ on_time ─ deduplicated ─┐
                                     joined ─ honest ─ counted
                       impressions ──┘

No step knows where rows come from or go to, so all of them run on tiny frames in tests, on a stream in
pipeline.py, and on a whole topic at once (`spark.read`) to check the stream.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LATENESS = "2 minutes"  # a click that is published later than this after it happened is rejected
CLICK_WINDOW = "10 minutes"  # a click belongs to an impression that was shown at most so long before
FRAUD_LIMIT = 5  # more clicks of one user on one ad in one minute are a robot's

# Spark drops what is older than the watermark, whenever it happens to notice. So that only the rules above
# decide, the watermark waits longer than they do: a minute more, by which partitions may be read apart.
WATERMARK = "3 minutes"


def on_time(clicks: DataFrame) -> DataFrame:
    return clicks.where(~_is_late())


def late(clicks: DataFrame) -> DataFrame:
    return clicks.where(_is_late())


def deduplicated(clicks: DataFrame) -> DataFrame:
    """A click that is published twice counts once. With the event time among the columns, Spark may forget a
    click as soon as the watermark has passed it.
    """
    return clicks.withWatermark("clicked_at", WATERMARK).dropDuplicates(["click", "clicked_at"])


def joined(clicks: DataFrame, impressions: DataFrame) -> DataFrame:
    """The clicks whose impression is known. The bounds of time tell Spark how long to keep either side."""
    shown = impressions.withWatermark("shown_at", WATERMARK).withColumnRenamed("impression", "shown")
    belongs = F.expr(
        f"impression = shown AND clicked_at >= shown_at AND clicked_at <= shown_at + INTERVAL {CLICK_WINDOW}"
    )
    # one event time is left: what follows counts by the minute of the click
    return clicks.join(shown.select("shown", "shown_at"), belongs).select("ad", "user", "clicked_at")


def honest(clicks: DataFrame) -> DataFrame:
    """Clicks per user, ad and minute, without those of users who click too often."""
    per_user = clicks.groupBy(F.window("clicked_at", "1 minute").alias("window"), "ad", "user").agg(
        F.count("*").alias("clicks")
    )
    return per_user.where(F.col("clicks") <= FRAUD_LIMIT)


def counted(clicks_per_user: DataFrame) -> DataFrame:
    """Clicks per ad and minute: a row for each, once, when the watermark has passed the minute."""
    # a window has no event time that a second window could go by; window_time gives it one, within the minute
    minute = F.window(F.window_time("window"), "1 minute")
    per_ad = clicks_per_user.groupBy(minute.alias("window"), "ad").agg(F.sum("clicks").alias("clicks"))
    return per_ad.select("ad", F.col("window.start").alias("minute"), "clicks")


def clicks_per_minute(clicks: DataFrame, impressions: DataFrame) -> DataFrame:
    return (
        clicks.transform(on_time)
        .transform(deduplicated)
        .transform(joined, impressions)
        .transform(honest)
        .transform(counted)
    )


def _is_late() -> Column:
    """By the record's own timestamp, not by when a batch happens to read it: the answer never changes."""
    return F.col("_timestamp") > F.col("clicked_at") + F.expr(f"INTERVAL {LATENESS}")
