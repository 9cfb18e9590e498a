"""Data loss: records deleted by retention, on request or with their topic, and truncated logs.

The query names the offsets and the cause, or skips them where failOnDataLoss is false.
"""

from __future__ import annotations

import json
import time

import pytest
from pyspark.errors import PySparkException

import headrace
from harness.headrace import Headrace
from harness.kafka import Kafka
from harness.wait import eventually
from headrace.client.admin.configs import Resource
from headrace.client.admin.offsets import OffsetAt


def rows(*offsets):
    return [(0, offset) for offset in offsets]


def numbers(frame):
    return sorted(row.offset for row in frame.select("offset").collect())


def deleted(admin, topic):
    admin.delete_topic(topic)
    eventually(lambda: topic in {one.name for one in admin.list_topics()}, False)


# --- the beginning of a log ------------------------------------------------------------------------------


def test_on_request(read, new_topic, fill, admin):
    topic = new_topic()
    fill(topic, 10)
    admin.delete_records({(topic, 0): 4})
    starts = json.dumps({topic: {"0": 1}})
    said = (
        rf"Offsets 1 to 3 of partition {topic}-0 no longer exist: deleted on request \(retention keeps every"
    )
    with pytest.raises(PySparkException, match=said):
        read(topic, startingOffsets=starts).collect()
    assert numbers(read(topic, startingOffsets=starts, failOnDataLoss=False)) == [4, 5, 6, 7, 8, 9]
    assert numbers(read(topic)) == [4, 5, 6, 7, 8, 9], "who begins at the beginning lost nothing"


def test_by_retention(stream, run, new_topic, fill, admin, producer):
    topic = new_topic()
    frame = stream(topic, startingOffsets="earliest")
    fill(topic, 5)
    run(frame)
    fill(topic, 3, first=5)
    now_ms = time.time_ns() // 1_000_000
    for number in range(4):  # so much later that they begin a segment
        producer.send(topic, b"%d" % number, timestamp_ms=now_ms)
    producer.flush()
    admin.alter_config(Resource.topic(topic), {"retention.ms": 3_600_000})
    eventually(lambda: admin.list_offsets({(topic, 0): OffsetAt.EARLIEST})[topic, 0].offset, 8)
    said = (
        rf"Offsets 5 to 7 of partition {topic}-0 no longer exist: deleted by retention \(retention.ms is "
        r"3600000\) or on request; the oldest remaining record is from 20\d\d-"
    )
    with pytest.raises(PySparkException, match=said):
        run(frame)
    forgiving = stream(topic, startingOffsets="earliest", failOnDataLoss=False)
    assert run(forgiving)[0] == rows(*range(5), *range(8, 12))


def test_while_they_are_being_read(read, new_topic, fill, admin):
    """The query has its plan when the records go, so it is the task that finds out."""
    topic = new_topic()
    fill(topic, 10, each=1)
    strict, forgiving = (read(topic, failOnDataLoss=fails).select("offset").rdd for fails in (True, False))
    assert (strict.getNumPartitions(), forgiving.getNumPartitions()) == (1, 1)  # both are planned
    admin.delete_records({(topic, 0): 4})
    with pytest.raises(
        Exception, match=f"offsets 0 to 3 of partition {topic}-0 were deleted during the read"
    ):
        strict.collect()
    assert sorted(row.offset for row in forgiving.collect()) == [4, 5, 6, 7, 8, 9]


def test_all_of_it(stream, run, new_topic, fill, admin):
    topic = new_topic()
    frame = stream(topic, startingOffsets="earliest")
    fill(topic, 2)
    run(frame)
    fill(topic, 3, first=2)
    admin.delete_records({(topic, 0): 5})
    with pytest.raises(PySparkException, match=r"Offsets 2 to 4 of .*; no records remain"):
        run(frame)
    assert run(stream(topic, failOnDataLoss=False))[0] == rows(0, 1)


# --- the end of a log ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Headrace, Kafka], ids=lambda kind: kind.name)
def test_a_log_that_was_cut(spark, run, tmp_path, kind):
    """A computer lost its power, and the end of its log with it, before anything noted how long the log was.

    A broker that has noted it does not use those offsets again: to a query such a log is not truncated.
    """
    with kind(tmp_path / "broker") as broker:

        def frame(**options):
            reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
            return reader.options(startingOffsets="earliest", **options).load("cut")

        def fill(numbers):
            with headrace.Producer(broker.bootstrap) as producer:
                for number in numbers:
                    producer.send("cut", b"%d" % number).get(30)  # a batch each

        with headrace.Admin(broker.bootstrap) as admin:
            admin.create_topic("cut", partitions=1)
        fill(range(10))
        assert run(frame())[0] == rows(*range(10))
        broker.kill()
        (log,) = broker.data.rglob("cut-0/*.log")
        content = log.read_bytes()
        assert len(content) % 10 == 0, "ten batches of the same size"
        log.write_bytes(content[: len(content) // 10 * 6])
        for checkpoint in broker.data.glob("*-offset-checkpoint"):
            checkpoint.unlink()
        broker.start()
        with pytest.raises(
            PySparkException, match="Offsets 6 to 9 of partition cut-0 no longer exist: the log ends"
        ):
            run(frame())
        assert run(frame(failOnDataLoss="false"))[0] == rows(*range(10))
        fill(range(2))
        assert run(frame())[0] == rows(*range(7), 6, 7, 7, 8, 9), "it goes on from the new end"


# --- topics ----------------------------------------------------------------------------------------------


def test_a_recreated_topic_is_an_error(stream, run, new_topic, fill, admin):
    topic = new_topic()
    fill(topic, 5)
    frame = stream(topic, startingOffsets="earliest")
    run(frame)
    deleted(admin, topic)
    admin.create_topic(topic, partitions=1)
    fill(topic, 9)
    with pytest.raises(PySparkException, match=f"topic '{topic}' was deleted and created again"):
        run(frame)
    assert run(frame, "new checkpoint")[0] == rows(*range(9))


def test_a_topic_with_another_id_is_another_topic(read, new_topic, fill):
    topic = new_topic()
    fill(topic, 1)
    starts = json.dumps({topic: {"0": 0, "id": "AAAAAAAAAAAAAAAAAAAAAQ"}})
    with pytest.raises(PySparkException, match="was deleted and created again"):
        read(topic, startingOffsets=starts).collect()


def test_a_deleted_topic_is_told(stream, run, new_topic, fill, admin):
    topic, other = new_topic(prefix="pair"), new_topic(prefix="pair")
    fill(topic, 5)
    fill(other, 5)
    pattern = f"{topic}|{other}"
    frame = stream(subscribePattern=pattern, startingOffsets="earliest")
    run(frame)
    deleted(admin, other)
    fill(topic, 1, first=5)
    with pytest.raises(PySparkException, match=f"partition {other}-0 no longer exist: the topic"):
        run(frame)
    found, _ = run(stream(subscribePattern=pattern, startingOffsets="earliest", failOnDataLoss=False))
    assert len(found) == 11
