"""A topic with records of old and new schemas is one frame, and a stream goes on while schemas change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace
from harness.registry_broker import RegistryBroker
from headrace.schemas import Registry, avro_serializer, json_serializer, protobuf_serializer
from spark.frames import fields, load


class Change(NamedTuple):
    """A field added, one removed, and one promoted to a larger type."""

    format: str
    older: str
    newer: str
    serializer: Callable[..., Any]
    old: dict[str, Any]  # what the older schema writes
    new: dict[str, Any]
    old_seen: dict[str, Any]  # by the newer schema
    new_seen: dict[str, Any]


AVRO = """{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, %s]}"""
JSON = """{"type": "object", "additionalProperties": %s, "properties": {"item": {"type": "string"}, %s}}"""
PROTO = 'syntax = "proto3"; message Order { string item = 1; %s }'
CHANGES = [
    Change(
        "avro",
        AVRO % '{"name": "gone", "type": "string", "default": "-"}, {"name": "count", "type": "int"}',
        AVRO % '{"name": "count", "type": "long"}, {"name": "country", "type": "string", "default": "??"}',
        lambda registry, schema, topic: avro_serializer(registry, schema, topic=topic),
        {"item": "tea", "gone": "x", "count": 1},
        {"item": "cup", "count": 2**40, "country": "at"},
        {"item": "tea", "count": 1, "country": "??"},
        {"item": "cup", "count": 2**40, "country": "at"},
    ),
    Change(
        "json",
        JSON % ("true", '"gone": {"type": "string"}, "count": {"type": "integer"}'),
        JSON % ("true", '"count": {"type": "number"}, "country": {"type": "string"}'),
        lambda registry, schema, topic: json_serializer(registry, schema, topic=topic),
        {"item": "tea", "gone": "x", "count": 1},
        {"item": "cup", "count": 2.5, "country": "at"},
        {"item": "tea", "count": 1.0, "country": None},
        {"item": "cup", "count": 2.5, "country": "at"},
    ),
    Change(
        "protobuf",
        PROTO % "string gone = 2; int32 count = 3;",
        PROTO % "int64 count = 3; optional string country = 4;",
        lambda registry, schema, topic: protobuf_serializer(registry, schema=schema, topic=topic),
        {"item": "tea", "gone": "x", "count": 1},
        {"item": "cup", "count": 2**40, "country": "at"},
        {"item": "tea", "count": 1, "country": None},
        {"item": "cup", "count": 2**40, "country": "at"},
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.format)
def test_old_and_new_records_are_one_frame(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str, change: Change
) -> None:
    registry = Registry(registry_broker.url)
    older = change.serializer(registry, change.older, orders)
    newer = change.serializer(registry, change.newer, orders)
    with headrace.Producer(registry_broker.servers) as producer:
        producer.send(orders, older.to_bytes(change.old)).get(timeout=30)
        if change.format == "json":  # its rules do not let an open object have one more property
            registry.set_level("NONE", f"{orders}-value")
        for value in (newer.to_bytes(change.new), older.to_bytes(change.old), None):
            producer.send(orders, value).get(timeout=30)
    options = {"valueFormat": change.format, "schema.registry.url": registry_broker.url}
    nothing = dict.fromkeys(change.new_seen)
    assert fields(load(spark, registry_broker, orders, options)) == [
        change.old_seen,
        change.new_seen,
        change.old_seen,
        nothing,
    ]


def test_a_stream_shows_the_columns_that_it_began_with(
    spark: SparkSession,
    registry_broker: RegistryBroker,
    orders: str,
    going_on: Callable[[DataFrame], StreamingQuery],
) -> None:
    # `gone` is removed while the stream runs, in a way that leaves its readers a default
    change = CHANGES[0]
    registry = Registry(registry_broker.url)
    with headrace.Producer(registry_broker.servers) as producer:
        producer.send(orders, change.serializer(registry, change.older, orders).to_bytes(change.old))
        producer.flush()
        frame = (
            spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", registry_broker.servers)
            .option("startingOffsets", "earliest")
            .option("valueFormat", "avro")
            .option("schema.registry.url", registry_broker.url)
            .load(orders)
        )
        query = going_on(frame.select("item", "gone", "count"))
        query.processAllAvailable()
        narrow = change.newer.replace('"long"', '"int"')  # what an older reader can still read
        newer = change.serializer(registry, narrow, orders)
        producer.send(orders, newer.to_bytes({"item": "cup", "count": 2, "country": "at"}))
        producer.flush()
        query.processAllAvailable()
    rows = spark.table(query.name).collect()
    assert sorted(tuple(row) for row in rows) == [("cup", "-", 2), ("tea", "x", 1)]
