"""The rules of the ad-click example on tiny frames: each rule, and its edges to the millisecond."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.ad_clicks import pipeline, steps
from harness.spark_queries import await_end

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MS = timedelta(milliseconds=1)

Row = dict[str, object]


def click(name: str, clicked_at: datetime = NOON, *, delay: timedelta = timedelta(0), **other: str) -> Row:
    """Published so long after it happened."""
    known = {"impression": f"i-{name}", "ad": "tea", "user": "u-1", **other}
    return {"click": name, "clicked_at": clicked_at, "_timestamp": clicked_at + delay, **known}


def impression(name: str, shown_at: datetime = NOON) -> Row:
    return {"impression": name, "ad": "tea", "shown_at": shown_at}


@pytest.fixture
def frames(spark: SparkSession):
    """Rows as a frame of clicks, or of impressions."""

    def frame(*rows: Row) -> DataFrame:
        schema = pipeline.CLICK if "click" in rows[0] else pipeline.IMPRESSION
        return spark.createDataFrame(list(rows), schema)

    return frame


def names(clicks: DataFrame) -> list[str]:
    return sorted(row.click for row in clicks.collect())


def test_a_click_is_late_by_a_millisecond(frames):
    limit = 2 * MINUTE
    clicks = frames(click("at-once"), click("just", delay=limit), click("late", delay=limit + MS))
    assert names(steps.on_time(clicks)) == ["at-once", "just"]
    assert names(steps.late(clicks)) == ["late"]


def test_a_click_counts_once(frames):
    clicks = frames(click("twice"), click("twice", delay=MINUTE), click("once"))
    assert names(steps.deduplicated(clicks)) == ["once", "twice"]


def test_a_click_belongs_to_an_impression_that_is_at_most_ten_minutes_old(frames):
    at = {
        "before": NOON - MS,
        "at-once": NOON,
        "just": NOON + 10 * MINUTE,
        "after": NOON + 10 * MINUTE + MS,
    }
    clicks = [click(name, moment, impression="i-1", user=name) for name, moment in at.items()]
    found = steps.joined(frames(*clicks, click("unknown", user="unknown")), frames(impression("i-1")))
    assert sorted(row.user for row in found.collect()) == ["at-once", "just"]
    assert found.columns == ["ad", "user", "clicked_at"]


def test_whoever_clicks_six_times_in_a_minute_is_a_robot(frames):
    def several(count: int, first: datetime, **who: Any) -> list[Row]:
        return [click(f"{who}-{number}", first + number * MS, **who) for number in range(count)]

    clicks = frames(
        *several(5, NOON, user="eager"),
        *several(6, NOON, user="robot"),
        *several(5, NOON, user="robot", ad="tea-cup"),  # another ad
        *several(6, NOON + MINUTE - 3 * MS, user="both-sides"),  # three in each of two minutes
    )
    found = {
        (row.user, row.ad, row.window.start.minute): row.clicks for row in steps.honest(clicks).collect()
    }
    assert found == {
        ("eager", "tea", 0): 5,
        ("robot", "tea-cup", 0): 5,
        ("both-sides", "tea", 0): 3,
        ("both-sides", "tea", 1): 3,
    }


def test_a_minute_ends_before_the_next_begins(frames):
    clicks = frames(
        click("first", NOON, user="u-1"),
        click("last", NOON + MINUTE - MS, user="u-2"),
        click("next", NOON + MINUTE, user="u-3"),
        click("other", NOON, ad="cup"),
    )
    found = steps.counted(steps.honest(clicks))
    assert found.columns == ["ad", "minute", "clicks"]
    counts = {(row.ad, row.minute.minute): row.clicks for row in found.collect()}
    assert counts == {("tea", 0): 2, ("tea", 1): 1, ("cup", 0): 1}


# --- as streams -------------------------------------------------------------------------------------------


def stream(spark: SparkSession, directory: Path, schema: str, *batches: list[Row]) -> DataFrame:
    """A micro-batch for each list of rows."""
    directory.mkdir()
    for number, rows in enumerate(batches):
        file = directory / f"{number}.json"
        file.write_text("\n".join(json.dumps(row, default=datetime.isoformat) for row in rows))
        os.utime(file, (number, number))  # files are read in order of their age
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(directory))


def test_a_stream_counts_each_minute_once_however_its_batches_are_cut(spark, tmp_path):
    """Copies, and clicks out of order, come in other batches; one far ahead lets the watermark pass."""
    others = [click(f"c-{number}", NOON + number * MS, user=f"u-{number}") for number in range(4)]
    ahead = NOON + 30 * MINUTE
    clicks = stream(
        spark,
        tmp_path / "clicks",
        pipeline.CLICK,
        [others[0], others[1], click("c-next", NOON + 2 * MINUTE)],
        [click("c-1", NOON + MS, user="u-1", delay=20 * MS), others[2]],
        [click("c-late", NOON, delay=2 * MINUTE + MS), click("c-just", NOON, delay=2 * MINUTE)],
        [others[3], others[0]],
        [click("closing", ahead, impression="i-never")],
        [others[3]],  # long forgotten, and older than the watermark: it changes nothing
    )
    shown: list[Any] = [row["impression"] for row in others] + ["i-c-next", "i-c-late", "i-c-just"]
    impressions = stream(
        spark,
        tmp_path / "impressions",
        pipeline.IMPRESSION,
        [impression(name) for name in shown],
        [impression("closing", ahead)],
    )
    counts = steps.clicks_per_minute(clicks, impressions)
    query = (
        counts.writeStream.format("memory")
        .queryName("counts")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    await_end(query)
    assert query.exception() is None
    found = [(row.ad, row.minute, row.clicks) for row in spark.table("counts").collect()]
    noon = NOON.replace(tzinfo=None)  # as Spark shows it, in the session's zone
    assert sorted(found) == [("tea", noon, 5), ("tea", noon + 2 * MINUTE, 1)]
