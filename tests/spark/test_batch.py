"""Batch queries: what rows look like, which topics are read, and how they are shared out between tasks."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException

pytestmark = pytest.mark.brief


def offsets(frame):
    """(partition, offset) of every row, in order."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_rows_have_the_columns_of_sparks_kafka_connector(read, new_topic, fill):
    topic = new_topic()
    fill(topic, 2, headers=[("trace", b"7"), ("none", None)])
    frame = read(topic, includeHeaders=True)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = frame.orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition) == (b"key-0", b"value-0", topic, 0)
    assert (first.offset, second.offset, first.timestampType) == (0, 1, 0)
    assert [(header.key, header.value) for header in first.headers] == [("trace", b"7"), ("none", None)]
    as_text = frame.selectExpr("cast(timestamp as string) as at").collect()
    assert sorted(row.at for row in as_text) == ["1970-01-01 00:00:01", "1970-01-01 00:00:02"]


def test_a_schema_leaves_columns_out(read, new_topic, fill, producer):
    topic = new_topic()
    fill(topic, 3)
    producer.send(topic, None, None)
    producer.flush()
    frame = read(topic, schema="offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    assert [row.value for row in frame.orderBy("offset").collect()] == [
        b"value-0",
        b"value-1",
        b"value-2",
        None,
    ]
    with pytest.raises(PySparkException, match="there is no column price"):
        read(topic, schema="price double").collect()


def test_topics_are_named_matched_or_assigned(read, new_topic, fill):
    first, second, other = (new_topic(2, prefix=prefix) for prefix in ("chosen", "chosen", "other"))
    for topic in (first, second, other):
        fill(topic, 2, (0, 1))
    assert read(f"{first}, {second}").groupBy("topic").count().count() == 2
    assert read(subscribe=first).count() == 4
    assert {row.topic for row in read(subscribePattern=f"{first}|{second}").collect()} == {first, second}
    assert offsets(read(assign=json.dumps({first: [1]}))) == [(1, 0), (1, 1)]


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition"])
def test_partitions_are_split_and_nothing_is_read_twice(read, new_topic, fill, option):
    topic = new_topic(2)
    fill(topic, 3_000, (0,), each=100)
    fill(topic, 10, (1,))
    values = {"minPartitions": 6, "maxRecordsPerPartition": 600, "maxBytesPerPartition": "20k"}
    frame = read(topic, **{option: values[option]})
    assert frame.rdd.getNumPartitions() >= 4
    assert offsets(frame) == [(0, number) for number in range(3_000)] + [(1, number) for number in range(10)]


def test_filters_are_right_whether_they_are_pushed_down_or_not(spark, read, new_topic, fill):
    topic = new_topic(3)
    fill(topic, 20, (0, 1, 2))
    conf = "spark.sql.python.filterPushdown.enabled"
    moment = datetime.fromtimestamp(15, UTC).isoformat()
    pushed = spark.conf.get(conf)
    try:
        for is_pushed in ("true", "false"):
            spark.conf.set(conf, is_pushed)
            frame = read(topic)
            assert frame.where("offset >= 17 and partition = 1").count() == 3
            assert frame.where("offset < 5 and partition in (0, 2)").count() == 10
            assert frame.where(f"timestamp > timestamp'{moment}'").count() == 3 * 5
            assert frame.where(f"topic = '{topic}' and offset = 3").count() == 3
            assert frame.where("topic = 'another'").count() == 0
    finally:
        spark.conf.set(conf, pushed)


def test_pushed_filters_are_not_read(spark, read, new_topic, fill):
    """Fewer tasks are planned: the partitions that a filter excludes have none."""
    topic = new_topic(4)
    fill(topic, 5, range(4))
    frame = read(topic).where("partition = 2")
    assert (read(topic).rdd.getNumPartitions(), frame.rdd.getNumPartitions()) == (4, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nothing-here"}, "topic 'nothing-here' does not exist"),
        ({}, "use one of load"),
        ({"subscribe": "a", "assign": "{}"}, "use one of load"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot be latest"),
        ({"subscribe": "a", "kafka__auto__offset__reset": "latest"}, "use startingOffsets"),
        ({"subscribe": "a", "kafka__fetch__min__byte": "1"}, "unknown setting"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(read, options, said):
    with pytest.raises(PySparkException, match=said):
        read(**options).collect()
