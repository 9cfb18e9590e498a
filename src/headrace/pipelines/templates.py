"""The files that `headrace pipeline init` writes: a pipeline that counts clicks per ad and minute."""

from __future__ import annotations

from pathlib import Path

from headrace.pipelines.errors import ProjectError

PROJECT = """\
name: {name}
storage: file://{storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  # once: until caught up; continuous; or an interval such as "10 seconds"
  headrace.trigger: once
"""

TRANSFORMATION = '''\
"""Clicks per ad and minute, from the topic clicks to the topic clicks-per-ad."""

from pyspark import pipelines as dp
from pyspark.sql import functions as f

from headrace.pipelines import expect_or_dead, parse

dp.create_sink("counts", "headrace", {"topic": "clicks-per-ad"})
dp.create_sink("clean", "headrace", {"topic": "clicks-clean"})


@dp.temporary_view
def clicks():
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load("clicks")
    rows = parse(records, "click string, ad string, clicked_at timestamp")
    return rows.withWatermark("clicked_at", "1 minute")


@dp.append_flow(target="clean")
@expect_or_dead("has_ad", "ad IS NOT NULL", topic="clicks-dead")
def clean_clicks():
    return spark.readStream.table("clicks").select(
        f.col("ad"), f.col("click").alias("key"), f.to_json(f.struct("click", "ad")).alias("value"), "_record"
    )


@dp.append_flow(target="counts")
def count_clicks():
    return (
        spark.readStream.table("clicks")
        .where("ad IS NOT NULL")
        .groupBy(f.window("clicked_at", "1 minute").alias("minute"), "ad")
        .agg(f.count("*").alias("clicks"))
        .select(
            f.col("ad").alias("key"),
            f.to_json(f.struct("ad", "clicks", f.col("minute.start").alias("minute"))).alias("value"),
        )
    )
'''

CASE = """\
name: two clicks in one minute, and one without an ad
given:
  clicks:
    - value: {click: c1, ad: a1, clicked_at: "2026-01-01T10:00:10Z"}
    - value: {click: c2, ad: a1, clicked_at: "2026-01-01T10:00:50Z"}
    - value: {click: c3, clicked_at: "2026-01-01T10:00:55Z"}
    # a minute is final when clicks are two minutes further
    - value: {click: c4, ad: a2, clicked_at: "2026-01-01T10:05:00Z"}
expect:
  clicks-per-ad:
    - {key: a1, value: {ad: a1, clicks: 2, minute: "2026-01-01T10:00:00.000Z"}}
  clicks-clean:
    - {key: c1, value: {ad: a1}}
    - {key: c2, value: {ad: a1}}
    - {key: c4, value: {ad: a2}}
  clicks-dead:
    - value: {click: c3}
"""

FILES = {
    "spark-pipeline.yml": PROJECT,
    "transformations/clicks.py": TRANSFORMATION,
    "cases/clicks.yml": CASE,
}


def write_project(directory: Path) -> list[Path]:
    """Write the files of a new project; raise ProjectError if the directory has something in it."""
    if directory.exists() and any(directory.iterdir()):
        raise ProjectError(f"{directory} is not empty: give the name of a new directory")
    written = []
    storage = (directory / "storage").resolve()
    for name, text in FILES.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        filled = text.format(name=directory.resolve().name, storage=storage) if text is PROJECT else text
        file.write_text(filled, encoding="utf-8")
        written.append(file)
    return written
