"""Schemas from a registry with users, over TLS: JSON, Avro and Protobuf, written and read with the same
rights as the records.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from harness.wait import eventually
from headrace.cli.spark_errors import sentence_of
from headrace.client.admin.acls import AclOperation, AclResource
from headrace.schema_formats.schema import SchemaType
from headrace.schemas import Registry, Schema
from spark.secured import JOB, PASSWORD, Secured, spark_options

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, TRANSACTIONAL_ID = AclResource.TOPIC, AclResource.TRANSACTIONAL_ID
PROTOBUF = 'syntax = "proto3"; message Click { int64 id = 1; string ad = 2; }'


def registry_options(secured: Secured, scheme: str) -> dict[str, str]:
    options = {"schema.registry.url": secured.registry_url(scheme)}
    if scheme == "https":
        options["schema.registry.ssl.ca.location"] = str(secured.authority.certificate)
    return options


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_a_password_over_tls(spark: SparkSession, secured: Secured, format: str) -> None:
    topic = f"registered-{format}"
    secured.admin.create_topic(topic, partitions=1)
    secured.forbid_all()
    secured.allow((WRITE, TOPIC, topic), (READ, TOPIC, topic), (WRITE, TRANSACTIONAL_ID, topic))
    given = registry_options(secured, "https")
    user = {"schema.registry.user": JOB, "schema.registry.password": PASSWORD}
    if format == "protobuf":  # which has no schema of its own
        registry = Registry(
            given["schema.registry.url"],
            user=JOB,
            password=PASSWORD,
            ssl_ca_location=given["schema.registry.ssl.ca.location"],
        )
        registry.register(f"{topic}-value", Schema(PROTOBUF, SchemaType.PROTOBUF))
    options = spark_options(secured.login("SASLTLS", "SCRAM-SHA-512")) | given | {"valueFormat": format}
    rows = spark.range(3).selectExpr("struct(id, concat('ad-', id) as ad) as value")
    written = rows.write.format("headrace").options(**options, **user, topic=topic)
    written.options(txnAppId=topic, txnVersion=1).mode("append").save()

    def found() -> list[tuple[int, str]]:
        frame = spark.read.format("headrace").options(**options, **user).load(topic)
        return sorted((row.id, row.ad) for row in frame.select("id", "ad").collect())

    eventually(found, [(0, "ad-0"), (1, "ad-1"), (2, "ad-2")])  # markers arrive a moment after the commit
    if format == "avro":
        in_url = {
            "schema.registry.url": given["schema.registry.url"].replace(
                "https://", f"https://{JOB}:{quote(PASSWORD, safe='')}@"
            )
        }
        assert spark.read.format("headrace").options(**options | in_url).load(topic).count() == 3


def test_without_what_it_takes(spark: SparkSession, secured: Secured) -> None:
    """No password, a wrong one, no right, and a certificate that nobody trusts: a sentence each."""
    secured.admin.create_topic("unregistered", partitions=1)
    secured.forbid_all()
    options = spark_options(secured.login("SASL", "SCRAM-SHA-256")) | {"valueFormat": "avro"}
    https = registry_options(secured, "https")
    user = {"schema.registry.user": JOB, "schema.registry.password": PASSWORD}
    trusting_nobody = {"schema.registry.url": https["schema.registry.url"]}
    for given, expected in (
        (https, "Unauthorized"),
        (https | user | {"schema.registry.password": "guessed"}, "Unauthorized"),
        (https | user, "denied"),
        (trusting_nobody | user, "certificate verify failed"),
    ):
        reader = spark.read.format("headrace").options(**options, **given)
        with pytest.raises(PySparkException) as raised:
            reader.load("unregistered").collect()
        said = sentence_of(raised.value)
        assert said is not None, raised.value
        assert expected in said
        assert PASSWORD not in str(raised.value)
        assert "guessed" not in str(raised.value)
