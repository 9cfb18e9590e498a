"""Frames written as JSON, Avro and Protobuf: schemas given, made of the columns, or found in a registry."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headrace
from harness.registry_broker import RegistryBroker
from harness.spark_queries import await_end
from headrace.schemas import Registry, Schema, any_deserializer
from spark.frames import fields, load, save

TYPES = """item string NOT NULL, price decimal(10, 2), count int, user struct<id: bigint, name: string>,
    tags map<string, double>, days array<date>, at timestamp, local timestamp_ntz, raw binary"""
AT = dt.datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=dt.UTC)
ROW = {
    "item": "tea",
    "price": Decimal("12.34"),
    "count": 3,
    "user": {"id": 7, "name": None},
    "tags": {"a": 1.5},
    "days": [dt.date(2026, 1, 31), None],
    "at": AT,
    "local": AT.replace(tzinfo=None),
    "raw": b"\x00\xff",
}
NOTHING = dict.fromkeys(ROW) | {"item": "nothing"}
PROTO = """syntax = "proto3"; package shop;
    message Key { string shop = 1; }
    message Order { string item = 1; optional int64 count = 2; oneof by { string card = 3; int64 cash = 4; }
    }"""


def rows(spark: SparkSession) -> Any:
    return spark.createDataFrame([tuple(ROW.values()), tuple(NOTHING.values())], TYPES).coalesce(1)


@pytest.mark.parametrize("has_registry", [True, False])
@pytest.mark.parametrize("format", ["avro", "json"])
def test_columns_make_a_schema(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str, format: str, has_registry: bool
) -> None:
    options = {"valueFormat": format}
    if has_registry:
        options["schema.registry.url"] = registry_broker.url
    save(rows(spark), registry_broker, orders, options)
    shown = dict(ROW), dict(NOTHING)
    if format == "json":  # which has neither decimals nor times without a zone
        shown[0].update(price=12.34, local="2026-01-31T12:30:15.123456")
    if has_registry:
        frame = load(spark, registry_broker, orders, options)
        assert frame.columns[: len(ROW)] == list(ROW)
        assert fields(frame) == list(shown)
        versions = Registry(registry_broker.url).versions(f"{orders}-value")
        save(rows(spark), registry_broker, orders, options)  # the same schema again
        wider = rows(spark).selectExpr("*", "'new' AS more")
        save(wider, registry_broker, orders, options)  # one column more may follow
        assert (versions, Registry(registry_broker.url).versions(f"{orders}-value")) == ([1], [1, 2])
        found = fields(load(spark, registry_broker, orders, options))
        assert [row["more"] for row in found] == [None, None, None, None, "new", "new"]
    elif format == "json":
        found = fields(load(spark, registry_broker, orders, options, schema=f"{TYPES}, _offset bigint"))
        assert found == [ROW, NOTHING]
    else:
        schema = Schema(_avro_schema(spark))
        assert fields(load(spark, registry_broker, orders, options | {"valueSchema": schema.text})) == [
            ROW,
            NOTHING,
        ]


def _avro_schema(spark: SparkSession) -> str:
    """What the columns make: by the same code, without Spark."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from headrace.schemas import encoder_for

    kind = pa.struct(list(to_arrow_schema(rows(spark).schema, timezone="UTC")))
    schema = encoder_for("avro", kind).schema
    assert schema is not None
    return schema.text


def test_keys_and_values_with_subjects_of_their_own(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str
) -> None:
    keys = '{"type": "record", "name": "Shop", "fields": [{"name": "shop", "type": "string"}]}'
    frame = spark.sql(
        "SELECT struct('vienna' AS shop) AS key, struct('tea' AS item, 2 AS count, 'visa' AS card) AS value"
    )
    options = {
        "keyFormat": "avro",
        "valueFormat": "protobuf",
        "schema.registry.url": registry_broker.url,
        "schema.registry.user": "ada",  # the built-in one does not mind
        "schema.registry.password": "secret",
        "keySubject": f"{orders}-shops",
        "valueSubject": f"{orders}-sales",
        "valueMessage": "Order",
    }
    save(frame, registry_broker, orders, options | {"keySchema": keys, "valueSchema": PROTO})
    registry = Registry(registry_broker.url)
    assert registry.latest(f"{orders}-shops").schema.text == keys
    found = load(spark, registry_broker, orders, options)
    assert fields(found) == [{"item": "tea", "count": 2, "card": "visa", "cash": None}]
    assert [row._key.shop for row in found.collect()] == ["vienna"]

    # what was read is written as it is, with the schemas that are there
    copy = f"{orders}-copy"
    with headrace.Admin(registry_broker.servers) as admin:
        admin.create_topic(copy, partitions=1)
    save(found, registry_broker, copy, options | {"schema.registry.auto.register": "false"})
    with headrace.Consumer(registry_broker.servers) as consumer:
        consumer.assign({(orders, 0): 0, (copy, 0): 0})
        messages: list[Any] = []
        while len(messages) < 2:
            messages += consumer.poll(30)
    assert messages[0].value == messages[1].value
    assert messages[0].key == messages[1].key
    assert messages[0].timestamp_ms == messages[1].timestamp_ms
    assert any_deserializer(registry).from_bytes(messages[0].value) == {
        "item": "tea",
        "count": "2",
        "card": "visa",
    }
    by_key = load(
        spark,
        registry_broker,
        orders,
        {
            "keyFormat": "avro",
            "keySchema": keys,
            "keyMessage": "ignored",
            "schema.registry.url": registry_broker.url,
        },
    )
    assert [row.key.shop for row in by_key.collect()] == ["vienna"]


def test_every_topic_has_its_subject(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str
) -> None:
    other = f"{orders}-other"
    with headrace.Admin(registry_broker.servers) as admin:
        admin.create_topic(other, partitions=1)
    frame = spark.createDataFrame(
        [(orders, ("tea",)), (other, ("cup",))], "topic string, value struct<item: string>"
    )
    options = {"valueFormat": "json", "schema.registry.url": registry_broker.url}
    save(frame, registry_broker, None, options)
    for topic, item in ((orders, "tea"), (other, "cup")):
        assert fields(load(spark, registry_broker, topic, options)) == [{"item": item}]
        assert Registry(registry_broker.url).versions(f"{topic}-value") == [1]


def test_what_cannot_be_written_is_told_before_it_is(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str
) -> None:
    def refused(select: str, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            save(
                spark.sql(f"SELECT {select}"),
                registry_broker,
                orders,
                {"schema.registry.url": registry_broker.url} | options,
            )
        return str(caught.value)

    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    assert "valueFormat=xml: must be binary, json, avro, protobuf" in refused("1 AS n", valueFormat="xml")
    assert "column n is of type string; the schema has int" in refused(
        "'x' AS n", valueFormat="avro", valueSchema=schema
    )
    assert "the schema has no field for column m" in refused(
        "1 AS n, 2 AS m", valueFormat="avro", valueSchema=schema
    )
    assert "the value has no field n, which has no default in the schema" in refused(
        "struct() AS value", valueFormat="avro", valueSchema=schema
    )
    assert "column a b: a name in Avro has only" in refused("1 AS `a b`", valueFormat="avro")
    assert "shop.Key has no field for column n" in refused(
        "1 AS n", valueFormat="protobuf", valueSchema=PROTO
    )
    assert "cast it to string or binary; or set valueFormat to write other types" in refused(
        "struct(1 AS n) AS value"
    )
    assert f"does not know subject '{orders}-value'" in refused("1 AS n", valueFormat="protobuf")
    # and while it is: rows that do not fit
    assert "cannot be encoded: " in refused("double('NaN') AS n", valueFormat="json")
    assert "card and cash cannot be set together" in refused(
        "'x' AS card, 1 AS cash",
        valueFormat="protobuf",
        valueSchema=PROTO,
        valueMessage="Order",
        valueSubject=f"{orders}-proto",
    )
    # the subject has a JSON schema by now
    assert "SCHEMA_TYPE_CHANGED" in refused("1 AS n", valueFormat="avro")


def test_a_stream_of_avro_is_exactly_once(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    spark.range(1000).selectExpr("id", "id % 7 AS shop").write.parquet(str(source))
    options = {"valueFormat": "avro", "keyFormat": "json", "schema.registry.url": registry_broker.url}

    def run() -> None:
        frame = spark.readStream.schema("id bigint, shop bigint").parquet(str(source))
        query = (
            frame.selectExpr("struct(shop) AS key", "struct(*) AS value")
            .writeStream.format("headrace")
            .option("kafka.bootstrap.servers", registry_broker.servers)
            .option("deliveryGuarantee", "exactly-once")
            .options(**options)
            .option("topic", orders)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        await_end(query)

    run()
    for batch in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        batch.unlink()  # as if the driver had died before Spark wrote down that the batch is done
    run()
    found = load(spark, registry_broker, orders, options)
    assert sorted(row.id for row in found.select("id").collect()) == list(range(1000))
    assert found.where("_key.shop != shop").count() == 0
