"""Streams: micro-batches, how large they are, and how many tasks read one."""

from __future__ import annotations

import json

import pytest

from harness.spark_queries import check_runs
from harness.wait import eventually

pytestmark = pytest.mark.brief

RUN_S = 120


def everything(count, partitions=(0,)):
    return [(partition, offset) for partition in partitions for offset in range(count)]


def test_a_run_reads_what_is_there_and_the_next_one_what_came(stream, run, new_topic, fill):
    topic = new_topic(2)
    fill(topic, 50, (0, 1))
    frame = stream(topic, startingOffsets="earliest")
    assert run(frame) == (everything(50, (0, 1)), [100])
    assert run(frame) == (everything(50, (0, 1)), [])
    fill(topic, 10, (0, 1), first=50)
    assert run(frame) == (everything(60, (0, 1)), [20])


def test_a_limit_of_offsets(stream, run, new_topic, fill):
    topic = new_topic()
    fill(topic, 1000)
    rows, sizes = run(stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=300))
    assert rows == everything(1000)
    assert sizes == [300, 300, 300, 100]


def test_a_limit_of_bytes(stream, run, new_topic, fill, producer):
    topic = new_topic()
    for _ in range(20):
        fill(topic, 1, headers=[("padding", bytes(1000))])
        producer.flush()
    rows, sizes = run(stream(topic, startingOffsets="earliest", maxBytesPerTrigger="6k"))
    assert len(rows) == 20
    assert 2 <= max(sizes) <= 8
    assert len(sizes) >= 3


@pytest.mark.parametrize(
    ("option", "value"),
    [("minPartitions", 4), ("maxRecordsPerPartition", 750), ("maxBytesPerPartition", "20k")],
)
def test_a_partition_is_one_task_unless_more_are_wanted(
    stream, run, new_topic, fill, tmp_path, option, value
):
    topic = new_topic()
    fill(topic, 3_000, each=100)
    whole, _ = run(stream(topic, startingOffsets="earliest"), "whole")
    parts, _ = run(stream(topic, startingOffsets="earliest", **{option: value}), "parts")
    assert whole == parts == everything(3_000)
    files = {name: len(list((tmp_path / name).glob("*.parquet"))) for name in ("whole", "parts")}
    assert files["whole"] == 1
    assert files["parts"] == 4 or (option == "maxBytesPerPartition" and files["parts"] > 2)


@pytest.fixture
def waiting(spark, stream, going_on, new_topic, fill):
    """A stream that has read the first record of its topic, and waits for more with these options."""
    interval = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(interval, "100ms")

    def start(**options):
        topic = new_topic()
        fill(topic, 1)
        query = going_on(stream(topic, startingOffsets="earliest", **options))

        def count():
            check_runs(query)
            return spark.sql(f"select * from {query.name}").count()

        def seen():
            """Up to where the stream knows of records, read or not."""
            check_runs(query)
            progress = query.lastProgress
            return progress and json.loads(progress.sources[0].latestOffset)[topic]["0"]

        eventually(count, 1, timeout_s=RUN_S)  # the first batch waits for nobody
        return topic, count, seen

    yield start
    spark.conf.unset(interval)


def test_a_small_batch_waits_until_enough_is_there(waiting, fill):
    topic, count, seen = waiting(minOffsetsPerTrigger=50, maxTriggerDelay="10m")
    fill(topic, 20, first=1)
    eventually(seen, 21, timeout_s=RUN_S)
    assert count() == 1, "twenty are too few"
    fill(topic, 30, first=21)
    eventually(count, 51, timeout_s=RUN_S)


def test_a_small_batch_does_not_wait_for_ever(waiting, fill):
    topic, count, _ = waiting(minOffsetsPerTrigger=50, maxTriggerDelay="1s")
    fill(topic, 20, first=1)
    eventually(count, 21, timeout_s=RUN_S)
