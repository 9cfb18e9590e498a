"""Whole batches as Arrow columns: every format, evolution, and rows that cannot be read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.schemas import (
    Reference,
    Registry,
    RegistryUnreachable,
    Schema,
    SchemaError,
    UnsupportedSchema,
    avro_serializer,
    decoder_for,
    encoder_for,
    json_serializer,
    protobuf_serializer,
)
from headrace.schemas.wire import framed
from schemas.messages import AVRO, AVRO_GROWN, JSON, PROTO

AT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def test_json_with_declared_types() -> None:
    kind = pa.schema([("ad", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    decoder = decoder_for("json", schema=kind)
    decoded = decoder.columns(
        binary(
            b'{"ad": "tea", "n": 1, "at": "2026-01-31T12:00:00Z", "more": [1]}',
            None,
            b"",
            b'{"ad": "tea", "n": "many"}',
            b'{"n": 2}{"n": 3}',
            b'{"n": 4',
            b' {"n":\n 5} \r\n',
            b"\xff\xfe",
            b'"text"',
            b'{"ad": {"x": 1}}',
            b'{"ad": "\xc3\xa9"}',
        )
    )
    assert decoded.struct.to_pylist() == [
        {"ad": "tea", "n": 1, "at": AT},
        *[None] * 5,
        {"ad": None, "n": 5, "at": None},
        *[None] * 2,
        {"ad": '{"x": 1}', "n": None, "at": None},
        {"ad": "é", "n": None, "at": None},
    ]
    assert [row for row, _ in decoded.failures] == [2, 3, 4, 5, 7, 8]
    reasons = dict(decoded.failures)
    assert reasons[2] == "the value is empty"
    assert reasons[3] == 'n is "many", not a whole number'
    assert reasons[4].startswith("not valid JSON: Extra data")
    assert reasons[8] == "not a JSON object"


def test_no_row_can_borrow_from_its_neighbours() -> None:
    decoder = decoder_for("json", schema=pa.schema([("n", pa.int64())]))
    values = [b'{"n":1}'] * 100
    values[10:14] = [b'{"n":{}', b'{"n":7}{"n":8}', b'{"n":[{}', b'{"n":"}']
    decoded = decoder.columns(binary(*values))
    assert [row for row, _ in decoded.failures] == [10, 11, 12, 13]
    assert [row for row, value in enumerate(decoded.struct.to_pylist()) if value != {"n": 1}] == [
        10,
        11,
        12,
        13,
    ]


def test_a_batch_without_a_bad_row_is_read_at_once() -> None:
    decoder = decoder_for("json", schema=pa.schema([("n", pa.int64())]))
    good = [b'{"n": 1}', None, b'{\n"n":\n2}', None, b'{"n":\r\n 3\n}']
    decoded = decoder.columns(binary(*good))
    assert decoded.failures == []
    assert decoded.struct.to_pylist() == [{"n": 1}, None, {"n": 2}, None, {"n": 3}]
    assert decoder.columns(binary(None, None)).struct.to_pylist() == [None, None]
    # what looks right one by one is still counted
    assert [row for row, _ in decoder.columns(binary(*good, b'{"n":4}{"n":5}')).failures] == [5]


def test_json_with_inferred_types() -> None:
    sample = binary(b'{"a": 1, "b": null}', b"garbage", b'{"a": 2.5, "c": {"d": ["x"]}}', None)
    decoder = decoder_for("json", sample=sample)
    assert decoder.type == pa.struct(
        [("a", pa.float64()), ("b", pa.string()), ("c", pa.struct([("d", pa.list_(pa.string()))]))]
    )
    decoded = decoder.columns(pa.chunked_array([sample, sample]))
    assert decoded.struct[2].as_py() == {"a": 2.5, "b": None, "c": {"d": ["x"]}}
    assert [row for row, _ in decoded.failures] == [1, 5]
    assert len(decoder.columns(pa.chunked_array([], pa.binary())).struct) == 0
    with pytest.raises(SchemaError, match="no value of the sample"):
        decoder_for("json", sample=binary(b"garbage"))


def test_json_maps_and_anything_are_read_too() -> None:
    schema = """{"type": "object", "properties": {"tags": {"type": "object", "additionalProperties":
        {"type": "integer"}}, "any": {}, "maybe": {"type": ["null", "boolean"]}}}"""
    decoder = decoder_for("json", schema=schema)
    decoded = decoder.columns(binary(b'{"tags": {"a": 1}, "any": [1, {}], "maybe": true}', b'{"tags": 1}'))
    assert decoded.struct[0].as_py() == {"tags": [("a", 1)], "any": "[1, {}]", "maybe": True}
    assert [row for row, _ in decoded.failures] == [1]


def test_avro_with_older_newer_and_unknown_writers(registry: Registry) -> None:
    older = avro_serializer(registry, AVRO, topic="columns-avro")
    newer = avro_serializer(registry, AVRO_GROWN, topic="columns-avro")
    click = {"ad": "tea", "price": 1.5, "tags": {"a": 1}, "at": AT}
    foreign = json_serializer(registry, JSON, topic="columns-other").to_bytes({"ad": "x"})
    decoder = decoder_for("avro", registry=registry, schema=AVRO_GROWN)
    good = older.to_bytes(click)
    assert good is not None
    decoded = decoder.columns(
        binary(
            good,
            newer.to_bytes({**click, "country": "at"}),
            None,
            b"",
            b"\0\0",
            framed(77_777, b"abc"),
            good[:-3],
            good + b"!",
            foreign,
            b"\x07garbage",
        )
    )
    row = {"ad": "tea", "price": 1.5, "tags": [("a", 1)], "at": AT}
    assert decoded.struct.to_pylist() == [{**row, "country": "??"}, {**row, "country": "at"}, *[None] * 8]
    assert [row for row, _ in decoded.failures] == [3, 4, 5, 6, 7, 8, 9]
    reasons = dict(decoded.failures)
    assert "does not know schema 77777" in reasons[5]
    assert "1 bytes are left after the value" in reasons[7]
    assert "is of type JSON, not AVRO" in reasons[8]
    # and the other way round: a reader that is behind
    behind = decoder_for("avro", registry=registry, schema=AVRO)
    assert behind.columns(binary(newer.to_bytes({**click, "country": "at"}))).struct[0].as_py() == row


def test_avro_that_refers_to_others(registry: Registry) -> None:
    registry.register(
        "kinds", Schema('{"type": "enum", "name": "Kind", "namespace": "y", "symbols": ["CAT", "DOG"]}')
    )
    pet = """{"type": "record", "name": "Pet", "namespace": "y", "fields": [
        {"name": "name", "type": "string"}, {"name": "kind", "type": "Kind"}]}"""
    registry.register("pets", Schema(pet, references=(Reference("y.Kind", "kinds", 1),)))
    owner = """{"type": "record", "name": "Owner", "fields": [{"name": "first", "type": ["null", "y.Pet"]},
        {"name": "others", "type": {"type": "array", "items": "y.Pet"}}]}"""
    to_pets = (Reference("y.Pet", "pets", 1),)
    cat, dog = {"name": "Mia", "kind": "CAT"}, {"name": "Rex", "kind": "DOG"}
    for number, (text, value, shown) in enumerate(
        (
            (owner, {"first": cat, "others": [dog]}, {"first": cat, "others": [dog]}),
            ('["null", "y.Pet"]', cat, {"value": cat}),
            ('["y.Pet", "string"]', cat, {"value": {"member0": cat, "member1": None}}),
        )
    ):
        serializer = avro_serializer(registry, Schema(text, references=to_pets), topic=f"references-{number}")
        data = serializer.to_bytes(value)
        assert serializer.from_bytes(data) == value
        decoder = decoder_for("avro", registry=registry, subject=f"references-{number}-value")
        decoded = decoder.columns(binary(data))
        assert decoded.failures == []
        assert decoded.struct.to_pylist() == [shown]
        column = decoded.struct if number == 0 else decoded.struct.field("value")
        encoder = encoder_for(
            "avro",
            column.type,
            registry=registry,
            subject=f"references-{number}-value",
            auto_register=False,
        )
        assert encoder.values(column).to_pylist() == [data]


def test_avro_without_a_registry() -> None:
    import fastavro

    from headrace.schemas import avro

    text = """{"type": "record", "name": "All", "fields": [
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "u", "type": ["null", "int", "string", {"type": "record", "name": "In", "fields": [
            {"name": "x", "type": "long"}]}]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "l", "type": {"type": "array", "items": ["null", {"type": "map", "values": "In"}]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}}]}"""
    write = avro.writer(fastavro.parse_schema(__import__("json").loads(text)))
    day = dt.date(2026, 1, 31)
    values = [
        {"d": Decimal("12.34"), "u": u, "e": "B", "l": [None, {"k": {"x": 1}}], "day": day}
        for u in (None, 5, "five", {"x": 6})
    ]
    decoded = decoder_for("avro", schema=text).columns(binary(*map(write, values)))
    assert decoded.failures == []
    rows: list[Any] = decoded.struct.to_pylist()
    assert rows[0] == {"d": Decimal("12.34"), "u": None, "e": "B", "l": [None, [("k", {"x": 1})]], "day": day}
    assert [row["u"] for row in rows[1:]] == [
        {"member0": 5, "member1": None, "member2": None},
        {"member0": None, "member1": "five", "member2": None},
        {"member0": None, "member1": None, "member2": {"x": 6}},
    ]
    bare = decoder_for("avro", schema='"string"')
    assert bare.columns(binary(b"\x06tea")).struct.to_pylist() == [{"value": "tea"}]
    chain = '{"type": "record", "name": "C", "fields": [{"name": "next", "type": ["null", "C"]}]}'
    with pytest.raises(UnsupportedSchema, match="C is recursive"):
        decoder_for("avro", schema=chain)


def test_protobuf_with_older_newer_and_unknown_writers(registry: Registry) -> None:
    grown = PROTO.replace("double price = 2;", "double price = 2; string country = 9;")
    older = protobuf_serializer(registry, "Click", schema=PROTO, topic="columns-proto")
    newer = protobuf_serializer(registry, "Click", schema=grown, topic="columns-proto")
    other = protobuf_serializer(registry, "Other", schema=PROTO, topic="columns-proto")
    click = {
        "ad": "tea",
        "price": 1.5,
        "tags": {"a": 1},
        "at": "2026-01-31T12:00:00Z",
        "colors": ["GREEN", 7],
    }
    good = older.to_bytes({**click, "phone": {"number": 2**64 - 1}})
    decoder = decoder_for("protobuf", registry=registry, schema=grown, message="Click")
    decoded = decoder.columns(
        binary(
            good,
            newer.to_bytes({"country": "at", "web": ""}),
            None,
            b"",
            other.to_bytes({"unused": 1}),
            framed(77_777, b"", (0,)),
            framed(registry.latest("columns-proto-value").id, b"\xff\xff\xff", (1,)),
            framed(registry.latest("columns-proto-value").id, b"", (9,)),
        )
    )
    empty = {"ad": "", "price": 0.0, "country": "", "tags": [], "at": None, "colors": []}
    assert decoded.struct.to_pylist()[:2] == [
        {
            "ad": "tea",
            "price": 1.5,
            "country": "",
            "tags": [("a", 1)],
            "at": AT,
            "web": None,
            "phone": {"number": Decimal(2**64 - 1)},
            "colors": ["GREEN", "7"],
        },
        {**empty, "country": "at", "web": "", "phone": None},
    ]
    reasons = dict(decoded.failures)
    assert sorted(reasons) == [3, 4, 5, 6, 7]
    assert "the value is a shop.Other, not a shop.Click" in reasons[4]
    assert "does not know schema 77777" in reasons[5]
    assert "the bytes are not a shop.Click" in reasons[6]
    # bare messages: no bytes at all are a message with nothing in it
    bare = decoder_for("protobuf", schema=PROTO, message="Click").columns(binary(b""))
    assert bare.struct[0]["ad"].as_py() == ""


def test_the_newest_version_of_a_subject_is_the_readers(registry: Registry) -> None:
    names = json_serializer(registry, JSON, topic="columns-json")
    data, (_, header) = names.with_header({"ad": "tea", "price": 1})
    decoder = (
        decoder_for("json", registry=registry, subject="columns-json-value") if names.to_bytes({}) else None
    )
    assert decoder is not None
    assert decoder.type == pa.struct([("ad", pa.string()), ("price", pa.float64())])
    in_front = names.to_bytes({"ad": "cup"})
    decoded = decoder.columns(binary(data, in_front, data), binary(header, None, None))
    assert decoded.struct.to_pylist() == [{"ad": "tea", "price": 1.0}, {"ad": "cup", "price": None}, None]
    assert [row for row, _ in decoded.failures] == [2]
    # of one schema, as most batches are; and a slice of one
    many = binary(in_front, None, *[names.to_bytes({"ad": "x" * number}) for number in range(50)])
    for begin in (0, 1, 20):
        decoded = decoder.columns(many.slice(begin))
        assert decoded.failures == []
        assert decoded.struct[-1]["ad"].as_py() == "x" * 49


def test_no_row_is_blamed_for_a_registry_that_is_down() -> None:
    registry = Registry("http://127.0.0.1:9", timeout_s=1)
    for decoder in (
        decoder_for("avro", schema=Schema(AVRO), registry=registry),
        decoder_for("json", schema=JSON, registry=registry),
        decoder_for("protobuf", schema=PROTO, message="Click", registry=registry),
    ):
        with pytest.raises(RegistryUnreachable):
            decoder.columns(binary(framed(1, b"{}", (0,))))
