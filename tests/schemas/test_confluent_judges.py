"""Confluent's own Python client is satisfied with the built-in registry, and reads what we write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from harness.registry_broker import RegistryBroker
from headrace.schemas import (
    Registry,
    any_deserializer,
    avro_serializer,
    decoder_for,
    json_serializer,
    protobuf_serializer,
)
from headrace.schemas.wire import framed, read_frame
from schemas.messages import AVRO, AVRO_GROWN, JSON, PROTO, generated

CLICK = {"ad": "tea", "price": 1.5}
AVRO_CLICK = {"ad": "tea", "price": 1.5, "tags": {"a": 1}, "at": None}


@pytest.fixture
def client(registry_broker: RegistryBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_broker.url}) as client:
        yield client


def refused(call: Any, *arguments: Any, **more: Any) -> int:
    with pytest.raises(SchemaRegistryError) as caught:
        call(*arguments, **more)
    return int(caught.value.error_code)


def value_of(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


def test_a_subject_from_its_first_version_to_its_end(client: SchemaRegistryClient) -> None:
    first = client.register_schema("life", Schema(AVRO, "AVRO"))
    assert client.register_schema("life", Schema(AVRO.replace("\n", " "), "AVRO")) == first
    assert client.register_schema("life-again", Schema(AVRO, "AVRO")) == first  # one schema, one id
    second = client.register_schema("life", Schema(AVRO_GROWN, "AVRO"))
    assert second > first
    assert client.get_versions("life") == [1, 2]
    assert client.get_latest_version("life").schema_id == second
    assert client.get_version("life", 1).schema_id == first
    assert client.lookup_schema("life", Schema(AVRO, "AVRO")).version == 1
    assert client.get_schema(second).schema_str == AVRO_GROWN
    assert {"life", "life-again"} <= set(client.get_subjects())
    assert {(one.subject, one.version) for one in client.get_schema_versions(first)} == {
        ("life", 1),
        ("life-again", 1),
    }
    assert refused(client.get_version, "life", 3) == 40402
    assert refused(client.get_version, "death", 1) == 40401
    assert refused(client.get_schema, 99_999) == 40403
    assert refused(client.delete_version, "life", 1, permanent=True) == 40407
    assert client.delete_version("life", 1) == 1
    assert refused(client.delete_version, "life", 1) == 40406
    assert client.get_versions("life") == [2]
    assert client.get_versions("life", deleted=True) == [1, 2]
    assert client.get_schema(first) is not None  # data outlives its subject
    assert client.delete_subject("life") == [2]
    assert refused(client.delete_subject, "life") == 40404
    assert "life" not in client.get_subjects()
    assert "life" in client.get_subjects(deleted=True)
    assert refused(client.delete_subject, "life-again", permanent=True) == 40405
    assert client.delete_subject("life-again") == [1]
    assert client.delete_subject("life-again", permanent=True) == [1]
    assert "life-again" not in client.get_subjects(deleted=True)


def test_compatibility_is_asked_and_kept(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.register_schema("strict", Schema(AVRO, "AVRO"))
    needs_more = AVRO.replace('{"name": "price"', '{"name": "shop", "type": "string"}, {"name": "price"')
    assert not client.test_compatibility("strict", Schema(needs_more, "AVRO"))
    assert client.test_compatibility("strict", Schema(AVRO_GROWN, "AVRO"))
    assert client.test_compatibility("nobody-knows", Schema(AVRO, "AVRO"))
    assert refused(client.register_schema, "strict", Schema(needs_more, "AVRO")) == 409
    assert refused(client.get_compatibility, "strict") == 40408
    client.set_compatibility("strict", "NONE")
    assert client.get_compatibility("strict") == "NONE"
    assert client.register_schema("strict", Schema(needs_more, "AVRO"))
    assert refused(client.set_compatibility, "strict", "ALMOST") == 42203
    assert refused(client.register_schema, "strict", Schema('{"type": "nonsense"}', "AVRO")) == 42201


def test_modes(client: SchemaRegistryClient) -> None:
    assert client.get_global_mode() == "READWRITE"
    client.register_schema("kept", Schema('"string"', "AVRO"))
    client.update_mode("kept", "READONLY")
    assert client.get_mode("kept") == "READONLY"
    assert refused(client.register_schema, "kept", Schema('"long"', "AVRO")) == 42205
    assert refused(client.delete_subject, "kept") == 42205
    client.update_mode("kept", "READWRITE")
    assert client.delete_subject("kept") == [1]


def test_references(client: SchemaRegistryClient) -> None:
    client.register_schema("pet", Schema('{"type": "record", "name": "Pet", "fields": []}', "AVRO"))
    owner = Schema(
        '{"type": "record", "name": "Owner", "fields": [{"name": "pet", "type": "Pet"}]}',
        "AVRO",
        [SchemaReference("Pet", "pet", 1)],
    )
    id = client.register_schema("owner", owner)
    (reference,) = client.get_schema(id).references or []
    assert reference.subject == "pet"
    assert client.get_referenced_by("pet", 1) == [id]
    assert refused(client.delete_version, "pet", 1) == 42206
    lost = Schema('{"type": "array", "items": "Lost"}', "AVRO", [SchemaReference("Lost", "lost", 1)])
    assert refused(client.register_schema, "owner-of-lost", lost) == 42201


def test_avro_both_ways(client: SchemaRegistryClient, registry: Registry) -> None:
    ours = avro_serializer(registry, AVRO, topic="avro-clicks")
    theirs = AvroSerializer(client, AVRO)
    context = value_of("avro-clicks")
    assert ours.to_bytes(AVRO_CLICK) == theirs(AVRO_CLICK, context)
    assert AvroDeserializer(client)(ours.to_bytes(AVRO_CLICK), context) == AVRO_CLICK
    assert ours.from_bytes(theirs(AVRO_CLICK, context)) == AVRO_CLICK
    grown = avro_serializer(registry, AVRO_GROWN, reader_schema=AVRO_GROWN, topic="avro-clicks")
    assert grown.from_bytes(theirs(AVRO_CLICK, context)) == {**AVRO_CLICK, "country": "??"}


def test_json_both_ways(client: SchemaRegistryClient, registry: Registry) -> None:
    ours = json_serializer(registry, JSON, topic="json-clicks")
    theirs = JSONSerializer(JSON, client)
    context = value_of("json-clicks")
    assert JSONDeserializer(None, schema_registry_client=client)(ours.to_bytes(CLICK), context) == CLICK
    assert ours.from_bytes(theirs(CLICK, context)) == CLICK
    assert any_deserializer(registry).from_bytes(theirs(CLICK, context)) == CLICK


def test_protobuf_both_ways(client: SchemaRegistryClient, registry: Registry) -> None:
    made = generated(PROTO, "shop.Click", "clicks.proto")
    click = made(ad="tea", price=1.5, tags={"a": 1}, phone={"number": 7})
    theirs = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    context = value_of("proto-clicks")
    sent = theirs(click, context)
    assert sent is not None
    assert sent[5:7] == b"\x02\x02"  # the way to the second message
    ours = protobuf_serializer(registry, "Click", schema=PROTO, topic="proto-clicks")
    read_by_us, sent_by_us = ours.from_bytes(sent), ours.to_bytes(click)
    assert read_by_us is not None
    assert sent_by_us is not None
    assert read_by_us.SerializeToString() == click.SerializeToString()
    assert sent_by_us[5:7] == b"\x02\x02"
    read = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
    assert read(ours.to_bytes(click), context) == click
    as_dict = any_deserializer(registry).from_bytes(sent)
    assert as_dict == {"ad": "tea", "price": 1.5, "tags": {"a": "1"}, "phone": {"number": "7"}}
    ours_of_class = protobuf_serializer(registry, made, topic="proto-clicks-of-a-class", as_dict=True)
    assert ours_of_class.from_bytes(ours_of_class.to_bytes(click)) == as_dict
    of_class = protobuf_serializer(registry, made, topic="proto-clicks").from_bytes(sent)
    assert isinstance(of_class, made)
    assert of_class == click


def test_ids_in_headers_both_ways(client: SchemaRegistryClient, registry: Registry) -> None:
    from headrace.records._messages import Message

    conf = {"schema.id.serializer": header_schema_id_serializer}
    headers: list[Any] = []
    context = value_of("header-clicks", headers)
    sent = JSONSerializer(JSON, client, conf=conf)(CLICK, context)
    message = Message("header-clicks", 0, 0, value=sent, headers=tuple(headers))
    ours = json_serializer(registry, JSON, topic="header-clicks")
    assert ours.read(message) == CLICK
    data, header = ours.with_header(CLICK)
    assert data == b'{"ad":"tea","price":1.5}'
    assert header == headers[0]


NESTED = """syntax = "proto3";
package shop;
message Outer {
  map<string, int32> counts = 1;
  message First { string a = 1; }
  map<string, First> firsts = 2;
  message Second { string a = 1; message Third { string a = 1; } map<string, Third> thirds = 2; }
}
"""


def test_a_message_inside_another_beside_maps(client: SchemaRegistryClient, registry: Registry) -> None:
    # the maps' entries count as messages, but not to everybody
    for name, way, way_by_text in (
        ("First", (0, 1), (0, 0)),
        ("Second", (0, 3), (0, 1)),
        ("Second.Third", (0, 3, 0), (0, 1, 0)),
    ):
        topic = f"nested-{name}"
        made = generated(NESTED, f"shop.Outer.{name}", "nested.proto")
        theirs = ProtobufSerializer(made, client, {"use.deprecated.format": False})
        reader = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
        ours = protobuf_serializer(registry, made, topic=topic)
        sent, written = theirs(made(a="x"), value_of(topic)), ours.to_bytes(made(a="x"))
        assert sent == written
        frame = read_frame(sent, with_indexes=True)
        assert frame.indexes == way
        assert frame.id is not None
        assert reader(sent, value_of(topic)) == made(a="x")
        by_text = framed(frame.id, sent[frame.payload_at :], way_by_text)
        columns = decoder_for(
            "protobuf", registry=registry, subject=f"{topic}-value", message=f"Outer.{name}"
        )
        for data in (sent, by_text):
            assert ours.from_bytes(data) == made(a="x")
            decoded = columns.columns(pa.array([data], pa.binary()))
            assert decoded.failures == []
            assert decoded.struct[0]["a"].as_py() == "x"
