"""The rights that docs/spark.md and docs/spark-sink.md list: with all of them a query works, and without any
single one it ends soon, with a short error that names the right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headrace
from harness.spark_queries import await_end
from harness.wait import eventually
from headrace.cli.spark_errors import sentence_of
from headrace.client.admin.acls import AclOperation, AclResource
from spark.secured import Secured, spark_options

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP, TRANSACTIONAL_ID = AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID
# of an error as Spark shows it, without the frames of the JVM
LINES_MAX = 25
_numbers = itertools.count()


def topic_with(secured: Secured, *values: bytes) -> str:
    name = f"rights-{next(_numbers)}"
    secured.admin.create_topic(name, partitions=1)
    with headrace.Producer(secured.login("SASL", "PLAIN", "admin", "admin's")) as producer:
        for value in values:
            producer.send(name, value)
    return name


def refusal(query: Callable[[], object]) -> str:
    """Its last sentence; the whole is short, and comes before anybody would call it a hang."""
    with pytest.raises(PySparkException) as raised:
        query()
    text = str(raised.value)
    shown = text.partition("JVM stacktrace")[0].splitlines()
    assert len(shown) <= LINES_MAX, text
    said = sentence_of(raised.value)
    assert said is not None, text
    return said


def test_reading(spark: SparkSession, secured: Secured) -> None:
    topic = topic_with(secured, b"1")
    options = spark_options(secured.login("SASL", "SCRAM-SHA-256"))

    def read() -> int:
        return spark.read.format("headrace").options(**options).load(topic).count()

    secured.forbid_all()
    for rights in ((), ((DESCRIBE, TOPIC, topic),)):  # the driver is refused, then the tasks
        secured.allow(*rights)
        said = refusal(read)
        assert topic in said
        assert "reading needs READ on the topic" in said
    secured.allow((READ, TOPIC, topic))
    assert read() == 1


def test_a_stream_and_its_progress(spark: SparkSession, secured: Secured, tmp_path: Path) -> None:
    """Without the right to the group it goes on, and its lag is not shown."""
    topic, group = topic_with(secured, b"1", b"2"), f"group-{next(_numbers)}"
    options = spark_options(secured.login("SASL", "SCRAM-SHA-256")) | {"kafka.group.id": group}

    def run(name: str) -> list[bytes]:
        stream = spark.readStream.format("headrace").options(**options, startingOffsets="earliest")
        query = (
            stream.load(topic)
            .writeStream.format("memory")
            .queryName(f"rights_{name}")
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        await_end(query)
        return [bytes(row.value) for row in spark.table(f"rights_{name}").orderBy("offset").collect()]

    secured.forbid_all()
    assert "reading needs READ on the topic" in refusal(lambda: run("none"))
    secured.allow((READ, TOPIC, topic))
    assert run("topic") == [b"1", b"2"]
    assert secured.admin.list_group_offsets(group) == {}
    secured.allow((READ, GROUP, group))
    assert run("both") == [b"1", b"2"]
    assert [each.offset for each in secured.admin.list_group_offsets(group).values()] == [2]


def test_writing(spark: SparkSession, secured: Secured) -> None:
    topic, sink = topic_with(secured), f"sink-{next(_numbers)}"
    options = spark_options(secured.login("SASL", "SCRAM-SHA-256")) | {"topic": topic}
    rows = spark.range(4, numPartitions=1).selectExpr("cast(id as string) as value")

    def write(**more: str) -> None:
        rows.write.format("headrace").options(**options, **more).mode("append").save()

    exactly = {"txnAppId": sink, "txnVersion": "1"}
    secured.forbid_all()
    secured.allow((WRITE, TOPIC, topic))
    said = refusal(lambda: write(**exactly))
    assert sink in said
    assert "WRITE on the transactional id" in said
    write(deliveryGuarantee="at-least-once")  # needs none
    secured.forbid_all()
    secured.allow((WRITE, TRANSACTIONAL_ID, sink))
    for more in (exactly, {"deliveryGuarantee": "at-least-once"}):
        said = refusal(lambda more=more: write(**more))  # type: ignore[misc]
        assert topic in said
        assert "WRITE on the topic" in said or "WRITE on a topic" in said
    secured.allow((WRITE, TOPIC, topic))
    write(**exactly)
    write(**exactly)  # which is known
    secured.allow((READ, TOPIC, topic))
    readable = spark_options(secured.login("TLS"))
    eventually(lambda: spark.read.format("headrace").options(**readable).load(topic).count(), 8)


def test_dead_letters(spark: SparkSession, secured: Secured) -> None:
    topic, letters = topic_with(secured, b'{"a": 1}', b"{"), topic_with(secured)
    options = spark_options(secured.login("SASL", "SCRAM-SHA-256")) | {
        "valueFormat": "json",
        "deadLetterTopic": letters,
    }

    def read() -> int:
        frame = spark.read.format("headrace").schema("a bigint").options(**options).load(topic)
        return len(frame.collect())

    secured.forbid_all()
    secured.allow((READ, TOPIC, topic))
    assert "deadLetterTopic needs WRITE" in refusal(read)
    secured.allow((WRITE, TOPIC, letters))
    assert read() == 1


def test_wrong_logins_are_told_in_a_few_lines(spark: SparkSession, secured: Secured) -> None:
    secured.forbid_all()
    wrong = secured.login("SASLTLS", "SCRAM-SHA-512", password="guessed")
    untrusted = {name: value for name, value in secured.login("TLS").items() if name != "ssl.ca.location"}
    nameless = {
        name: value for name, value in secured.login("MUTUAL").items() if name != "ssl.keystore.location"
    }
    for settings, expected in (
        (wrong, "the broker refused user job with SCRAM-SHA-512"),
        (untrusted, "is not trusted"),
        (nameless, "client certificate"),
    ):
        options = spark_options(settings)
        frame = spark.read.format("headrace").options(**options).load("anything")
        said = refusal(frame.count)
        assert expected in said
        assert "guessed" not in said
