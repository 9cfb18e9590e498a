"""Streams: micro-batches, their limits, progress that others see, and what happens when topics change."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException

import headrace
from harness.wait import eventually

RUN_S = 120


@pytest.fixture
def run(spark, tmp_path):
    """Runs a stream with AvailableNow into a table; the rows so far, and the size of each micro-batch.

    Called again it goes on from its checkpoint.
    """

    def go(frame, name="run"):
        query = (
            frame.select("partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / name))
            .option("checkpointLocation", str(tmp_path / f"{name}.checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(RUN_S), "it does not end"
        rows = spark.read.schema("partition int, offset bigint").parquet(str(tmp_path / name)).collect()
        sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        return sorted((row.partition, row.offset) for row in rows), sizes

    return go


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


def test_the_default_is_to_begin_with_what_comes(stream, run, new_topic, fill):
    topic = new_topic()
    fill(topic, 5)
    frame = stream(topic)
    assert run(frame) == ([], [])
    fill(topic, 3, first=5)
    assert run(frame)[0] == [(0, 5), (0, 6), (0, 7)]


def test_times_say_where_to_begin(stream, run, new_topic, fill):
    topic = new_topic()
    fill(topic, 5)
    assert run(stream(topic, startingTimestamp=4_000))[0] == [(0, 3), (0, 4)]


def test_a_partition_is_one_task_unless_more_are_wanted(spark, stream, run, new_topic, fill, tmp_path):
    topic = new_topic()
    fill(topic, 100)
    run(stream(topic, startingOffsets="earliest"), "whole")
    run(stream(topic, startingOffsets="earliest", minPartitions=4), "parts")
    files = {name: len(list((tmp_path / name).glob("*.parquet"))) for name in ("whole", "parts")}
    assert files == {"whole": 1, "parts": 4}


def test_progress_is_that_of_a_group(stream, run, new_topic, fill, admin):
    topic = new_topic()
    fill(topic, 10)
    run(stream(topic, startingOffsets="earliest", kafka__group__id=f"group of {topic}"))
    committed = admin.list_group_offsets(f"group of {topic}")
    assert committed[topic, 0].offset == 10, "also of the last batch"


def test_new_partitions_are_found_and_read_from_their_beginning(stream, run, new_topic, fill, admin, servers):
    topic = new_topic(1)
    fill(topic, 5)
    frame = stream(topic, startingOffsets="latest")
    assert run(frame) == ([], [])
    admin.create_partitions({topic: 3})
    with headrace.Producer(servers) as producer:  # one that has not heard of the topic before
        for number in range(8):
            producer.send(topic, b"value", partition=1 + number % 2)
    assert run(frame)[0] == everything(4, (1, 2))
    assert run(frame)[1] == []


def test_a_recreated_topic_is_an_error(stream, run, new_topic, fill, admin):
    topic = new_topic()
    fill(topic, 5)
    frame = stream(topic, startingOffsets="earliest")
    run(frame)
    admin.delete_topic(topic)
    eventually(lambda: topic in {one.name for one in admin.list_topics()}, False)
    admin.create_topic(topic, partitions=1)
    fill(topic, 9)
    with pytest.raises(PySparkException, match=f"topic '{topic}' was deleted and made anew"):
        run(frame)


def test_lost_records_are_told_with_their_offsets(stream, run, new_topic, fill, admin):
    topic = new_topic(config={"retention.ms": "3600000000"})
    fill(topic, 5)
    frame = stream(topic, startingOffsets="earliest")
    run(frame)
    fill(topic, 10, first=5)
    admin.delete_records({(topic, 0): 8})
    said = rf"Offsets 5 to 7 of partition {topic}-0 are gone: deleted by retention \(retention.ms is 36"
    with pytest.raises(PySparkException, match=said):
        run(frame)
    forgiving = stream(topic, startingOffsets="earliest", failOnDataLoss=False)
    assert run(forgiving)[0] == [(0, offset) for offset in (*range(5), *range(8, 15))]


def test_a_deleted_topic_is_told(stream, run, new_topic, fill, admin):
    topic, other = new_topic(prefix="pair"), new_topic(prefix="pair")
    fill(topic, 5)
    fill(other, 5)
    pattern = f"{topic}|{other}"
    frame = stream(subscribePattern=pattern, startingOffsets="earliest")
    run(frame)
    admin.delete_topic(other)
    eventually(lambda: other in {one.name for one in admin.list_topics()}, False)
    fill(topic, 1, first=5)
    with pytest.raises(PySparkException, match=f"partition {other}-0 are gone: the topic"):
        run(frame)
    rows, _ = run(stream(subscribePattern=pattern, startingOffsets="earliest", failOnDataLoss=False))
    assert len(rows) == 11


def test_a_small_batch_waits_until_enough_is_there(spark, stream, new_topic, fill, tmp_path):
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    topic = new_topic()
    fill(topic, 1)
    query = (
        stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="10m")
        .writeStream.format("memory")
        .queryName("patient")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )

    def count():
        return spark.sql("select * from patient").count()

    def seen():
        """Up to where the stream knows of records, read or not."""
        return json.loads(query.lastProgress.sources[0].latestOffset)[topic]["0"]

    try:
        eventually(count, 1, timeout_s=RUN_S)  # the first batch waits for nobody
        fill(topic, 20, first=1)
        eventually(seen, 21, timeout_s=RUN_S)
        assert count() == 1, "twenty are too few"
        fill(topic, 30, first=21)
        eventually(count, 51, timeout_s=RUN_S)
    finally:
        query.stop()


def test_what_was_pasted_from_a_checkpoint_is_understood(stream, run, new_topic, fill, admin):
    topic = new_topic()
    fill(topic, 5)
    topic_id = admin.describe_topic(topic).topic_id
    starts = json.dumps({topic: {"0": 3, "id": topic_id}})
    assert run(stream(topic, startingOffsets=starts))[0] == [(0, 3), (0, 4)]
