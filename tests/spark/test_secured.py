"""Source and exactly-once sink on a secured Headrace: by TLS, certificates, passwords and tokens, with no
other rights than the documented ones.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.spark_queries import await_end
from harness.wait import eventually
from headrace.client.admin.acls import AclOperation, AclResource
from spark.secured import LOGINS, Secured, spark_options

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP, TRANSACTIONAL_ID = AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID
_numbers = itertools.count()


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        pytest.param(*login, marks=[pytest.mark.brief] if login == ("SASLTLS", "SCRAM-SHA-512") else [])
        for login in LOGINS
    ],
)
def test_a_stream_from_topic_to_topic(
    spark: SparkSession, secured: Secured, tmp_path: Path, listener: str, mechanism: str
) -> None:
    """Written as a batch, copied by a stream, read as a batch: driver and workers log in for each."""
    number = next(_numbers)
    source, copy, sink, group = (f"{name}-{number}" for name in ("in", "out", "sink", "group"))
    for topic in (source, copy):
        secured.admin.create_topic(topic, partitions=2)
    secured.forbid_all()
    secured.allow(
        (READ, TOPIC, source),
        (READ, GROUP, group),
        (WRITE, TOPIC, source),
        (WRITE, TOPIC, copy),
        (READ, TOPIC, copy),
        (WRITE, TRANSACTIONAL_ID, sink),
    )
    options = spark_options(secured.login(listener, mechanism))
    numbers = spark.range(20).selectExpr("cast(id as string) as value")
    written = numbers.write.format("headrace").options(
        **options, topic=source, deliveryGuarantee="exactly-once"
    )
    written.options(txnAppId=sink, txnVersion=1).mode("append").save()
    stream = spark.readStream.format("headrace").options(**options, startingOffsets="earliest")
    query = (
        stream.option("kafka.group.id", group)
        .load(source)
        .select("value")
        .writeStream.format("headrace")
        .options(**options, topic=copy, deliveryGuarantee="exactly-once", txnAppId=f"{sink}-stream")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    secured.allow((WRITE, TRANSACTIONAL_ID, f"{sink}-stream"))
    await_end(query.start())

    def copied() -> list[int]:
        rows = (
            spark.read.format("headrace")
            .options(**options)
            .load(copy)
            .selectExpr("int(string(value)) as value")
        )
        return sorted(row.value for row in rows.collect())

    eventually(copied, list(range(20)))  # its markers arrive a moment after the commit
    committed = secured.admin.list_group_offsets(group)
    assert sum(each.offset for each in committed.values()) > 0, "the stream's progress"
