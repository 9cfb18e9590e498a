"""Every writer with every reader: Headrace's client, confluent-kafka and Spark, in all three formats, against
the broker's own registry.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import Row

import headrace
from harness.headrace import Headrace
from headrace.schemas import Registry, avro_serializer, json_serializer, protobuf_serializer
from schemas.conftest import Site
from schemas.messages import generated
from spark import schema_rows
from spark.schema_rows import AVRO, AVRO_TYPES, JSON, JSON_TYPES, PROTO, PROTO_TYPES

WRITERS = ("headrace", "confluent", "spark")
_names = itertools.count()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Headrace(tmp_path_factory.mktemp("registry"), {"headrace.metrics.port": "0"}) as broker:
        yield Site(broker)


@pytest.fixture
def topic(site: Site) -> str:
    name = f"orders-{next(_names)}"
    with headrace.Admin(site.servers) as admin:
        admin.create_topic(name, partitions=1)
    return name


class Client(NamedTuple):
    """How a client writes and reads values; None: not at all."""

    write: Callable[[Any], bytes | None]
    read: Callable[[bytes], Any]


class Language(NamedTuple):
    format: str
    schema: str
    types: str
    value: Callable[[str], Any]  # of a writer, as clients have it
    row: Callable[[str], Any]  # as Spark has it
    headrace: Callable[[Registry, str], Client]
    confluent: Callable[[SchemaRegistryClient, str], Client]


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def _of_headrace(make: Callable[..., Any]) -> Callable[[Registry, str], Client]:
    def client(registry: Registry, topic: str) -> Client:
        made = make(registry, topic)
        return Client(made.to_bytes, made.from_bytes)

    return client


def _confluent_avro(registry: SchemaRegistryClient, topic: str) -> Client:
    writes, reads = AvroSerializer(registry, AVRO), AvroDeserializer(registry)
    return Client(lambda value: writes(value, context(topic)), lambda data: reads(data, context(topic)))


def _confluent_json(registry: SchemaRegistryClient, topic: str) -> Client:
    writes, reads = JSONSerializer(JSON, registry), JSONDeserializer(JSON, schema_registry_client=registry)
    return Client(lambda value: writes(value, context(topic)), lambda data: reads(data, context(topic)))


order_class = generated(PROTO, "shop.Order", "orders.proto")


def _confluent_protobuf(registry: SchemaRegistryClient, topic: str) -> Client:
    plainly = {"use.deprecated.format": False}
    writes = ProtobufSerializer(order_class, registry, plainly)
    reads = ProtobufDeserializer(order_class, plainly, registry)
    return Client(lambda value: writes(value, context(topic)), lambda data: reads(data, context(topic)))


LANGUAGES = [
    Language(
        "avro",
        AVRO,
        AVRO_TYPES,
        schema_rows.avro_value,
        schema_rows.avro_row,
        _of_headrace(lambda registry, topic: avro_serializer(registry, AVRO, topic=topic)),
        _confluent_avro,
    ),
    Language(
        "json",
        JSON,
        JSON_TYPES,
        schema_rows.json_value,
        schema_rows.json_row,
        _of_headrace(lambda registry, topic: json_serializer(registry, JSON, topic=topic)),
        _confluent_json,
    ),
    Language(
        "protobuf",
        PROTO,
        PROTO_TYPES,
        lambda writer: order_class(**schema_rows.proto_value(writer)),
        schema_rows.proto_row,
        _of_headrace(lambda registry, topic: protobuf_serializer(registry, order_class, topic=topic)),
        _confluent_protobuf,
    ),
]


def plain(value: Any) -> Any:
    """Rows as dicts, and times by the clock they mean."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def shown(frame: DataFrame, types: str) -> list[Any]:
    """The rows, in the order of the log; instants in UTC, which is the session's zone."""
    columns = [field.name for field in frame.schema if not field.name.startswith("_")]
    rows = frame.orderBy("_offset").select(*columns).collect()
    instants = {field.name for field in frame.schema if field.dataType.typeName() == "timestamp"}
    found = []
    for row in rows:
        values = plain(row)
        for name in instants & values.keys():
            if values[name] is not None:
                values[name] = values[name].astimezone(dt.UTC)
        found.append(values)
    return found


def written_by_spark(
    spark: SparkSession, site: Site, topic: str, rows: list[Any], types: str, **options: str
) -> None:
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], types)
    writer = frame.write.format("headrace").option("kafka.bootstrap.servers", site.servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode("append").save(topic)


def read_by_spark(spark: SparkSession, site: Site, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", site.servers)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load(topic)


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda one: one.format)
def test_every_writer_with_every_reader(
    spark: SparkSession, site: Site, topic: str, language: Language
) -> None:
    clients = {
        "headrace": language.headrace(Registry(site.url), topic),
        "confluent": language.confluent(SchemaRegistryClient({"url": site.url}), topic),
    }
    with headrace.Producer(site.servers) as producer:
        for name, client in clients.items():
            producer.send(topic, client.write(language.value(name)), name.encode())
            producer.flush()
    options = {"valueFormat": language.format, "schema__registry__url": site.url}
    ordered = [field.name for field in spark.createDataFrame([], language.types).schema]
    row = language.row("spark")
    written_by_spark(
        spark,
        site,
        topic,
        [{name: row[name] for name in ordered}],
        language.types,
        valueSchema=language.schema,
        **options,
    )

    frame = read_by_spark(spark, site, topic, **options)
    assert {field.name: field.dataType for field in frame.schema if field.name in ordered} == {
        field.name: field.dataType for field in spark.createDataFrame([], language.types).schema
    }
    found = shown(frame, language.types)
    for writer, values in zip(WRITERS, found, strict=True):
        assert values == language.row(writer), f"{writer} to spark"

    with headrace.Consumer(site.servers) as consumer:
        consumer.assign({(topic, 0): 0})
        messages: list[Any] = []
        while len(messages) < len(WRITERS):
            messages += consumer.poll(30)
    for writer, message in zip(WRITERS, messages, strict=True):
        for reader, client in clients.items():
            assert client.read(message.value) == language.value(writer), f"{writer} to {reader}"
