"""Every writer with every reader: Headrace's client, confluent-kafka and Spark, in all three formats, against
the broker's own registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import headrace
from harness.registry_broker import RegistryBroker
from headrace.schemas import Registry, avro_serializer, json_serializer, protobuf_serializer
from schemas.messages import generated
from spark import schema_rows
from spark.frames import fields, load, save
from spark.schema_rows import AVRO, AVRO_TYPES, JSON, JSON_TYPES, PROTO, PROTO_TYPES

WRITERS = ("headrace", "confluent", "spark")


class Client(NamedTuple):
    """How a client writes and reads values."""

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


@pytest.fixture
def confluent(registry_broker: RegistryBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_broker.url}) as client:
        yield client


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda one: one.format)
def test_every_writer_with_every_reader(
    spark: SparkSession,
    registry_broker: RegistryBroker,
    confluent: SchemaRegistryClient,
    orders: str,
    language: Language,
) -> None:
    topic = orders
    clients = {
        "headrace": language.headrace(Registry(registry_broker.url), topic),
        "confluent": language.confluent(confluent, topic),
    }
    with headrace.Producer(registry_broker.servers) as producer:
        for name, client in clients.items():
            producer.send(topic, client.write(language.value(name)), name.encode())
            producer.flush()
    options = {"valueFormat": language.format, "schema.registry.url": registry_broker.url}
    kinds = spark.createDataFrame([], language.types).schema
    row = language.row("spark")
    frame = spark.createDataFrame([tuple(row[name] for name in kinds.names)], kinds)
    save(frame, registry_broker, topic, options | {"valueSchema": language.schema})

    found = load(spark, registry_broker, topic, options)
    assert StructType([field for field in found.schema if field.name in kinds.names]) == kinds
    for writer, values in zip(WRITERS, fields(found), strict=True):
        assert values == language.row(writer), f"{writer} to spark"

    with headrace.Consumer(registry_broker.servers) as consumer:
        consumer.assign({(topic, 0): 0})
        messages: list[Any] = []
        while len(messages) < len(WRITERS):
            messages += consumer.poll(30)
    for writer, message in zip(WRITERS, messages, strict=True):
        for reader, client in clients.items():
            assert client.read(message.value) == language.value(writer), f"{writer} to {reader}"
