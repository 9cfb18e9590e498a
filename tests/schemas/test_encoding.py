"""Arrow columns as values: the bytes are those of the serializers, and what does not fit is told."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headrace.client.serializers import NotSerializable
from headrace.schemas import (
    DoesNotFit,
    Registry,
    Schema,
    SchemaError,
    SchemaUnknown,
    avro_serializer,
    decoder_for,
    encoder_for,
    protobuf_serializer,
)
from schemas.messages import AVRO, AVRO_GROWN, PROTO

AT = dt.datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=dt.UTC)
CLICKS = pa.struct(
    [
        ("ad", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
CLICK: dict[str, Any] = {"ad": "tea", "price": 1.5, "tags": [("a", 1)], "at": AT}


def test_avro_is_written_as_the_serializer_does(registry: Registry) -> None:
    encoder = encoder_for("avro", CLICKS, schema=AVRO, registry=registry, subject="encoded-value")
    values = encoder.values(pa.array([CLICK, None, {**CLICK, "at": None}], CLICKS))
    theirs = avro_serializer(registry, AVRO, subject="encoded-value")
    click = {**CLICK, "tags": {"a": 1}}
    assert values.to_pylist() == [theirs.to_bytes(click), None, theirs.to_bytes({**click, "at": None})]
    # a field with a default need not be there, and the newest schema is found
    registry.register("encoded-value", Schema(AVRO_GROWN))
    newest = encoder_for("avro", CLICKS, registry=registry, subject="encoded-value", auto_register=False)
    assert newest.schema == Schema(AVRO_GROWN)
    decoded = decoder_for("avro", registry=registry, subject="encoded-value").columns(
        newest.values(pa.chunked_array([[CLICK], [CLICK]], CLICKS))
    )
    assert decoded.struct[1].as_py() == {**CLICK, "at": AT.replace(microsecond=123_000), "country": "??"}
    with pytest.raises(SchemaUnknown, match="encoded-never"):
        encoder_for("avro", CLICKS, registry=registry, subject="encoded-never", auto_register=False)
    with pytest.raises(SchemaUnknown):
        encoder_for(
            "avro",
            pa.int32(),
            schema='"int"',
            registry=registry,
            subject="encoded-value",
            auto_register=False,
        )


def test_protobuf_is_written_as_the_serializer_does(registry: Registry) -> None:
    kind = pa.struct([*CLICKS, pa.field("phone", pa.struct([("number", pa.uint64())])), ("web", pa.string())])
    encoder = encoder_for(
        "protobuf", kind, schema=PROTO, message="Click", registry=registry, subject="encoded-proto"
    )
    rows = [{**CLICK, "phone": {"number": 2**64 - 1}}, None, {"web": ""}]
    theirs = protobuf_serializer(registry, "Click", schema=PROTO, subject="encoded-proto")
    click = {
        "ad": "tea",
        "price": 1.5,
        "tags": {"a": 1},
        "at": AT.isoformat(),
        "phone": {"number": 2**64 - 1},
    }
    assert encoder.values(pa.array(rows, kind)).to_pylist() == [
        theirs.to_bytes(click),
        None,
        theirs.to_bytes({"web": ""}),
    ]
    with pytest.raises(NotSerializable, match="web and phone cannot be set together"):
        encoder.values(pa.array([{"web": "x", "phone": {"number": 1}}], kind))
    signed = pa.struct([("phone", pa.struct([("number", pa.int64())]))])
    encoder = encoder_for("protobuf", signed, schema=PROTO, message="Click")
    with pytest.raises(NotSerializable, match="do not fit"):
        encoder.values(pa.array([{"phone": {"number": -1}}], signed))


def test_every_type_makes_an_avro_schema_that_fastavro_takes() -> None:
    kind = pa.struct(
        [
            pa.field("byte", pa.int8(), nullable=False),
            ("flag", pa.bool_()),
            ("small", pa.int16()),
            ("whole", pa.int64()),
            ("single", pa.float32()),
            ("amount", pa.decimal128(38, 10)),
            ("day", pa.date32()),
            ("time", pa.time64("us")),
            ("at", pa.timestamp("us", "Europe/Vienna")),
            ("local", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("nothing", pa.null()),
            ("list", pa.list_(pa.struct([("x", pa.int32()), ("list", pa.struct([("y", pa.int32())]))]))),
            ("map", pa.map_(pa.string(), pa.list_(pa.string()))),
        ]
    )
    row = {
        "byte": 1,
        "flag": False,
        "small": -5,
        "whole": 2**62,
        "single": 0.5,
        "amount": Decimal("-12345678901234567890.0123456789"),
        "day": AT.date(),
        "time": dt.time(23, 59, 59, 999_999),
        "at": AT,
        "local": AT.replace(tzinfo=None),
        "raw": b"\xff",
        "nothing": None,
        "list": [{"x": 1, "list": {"y": 2}}, None],
        "map": {"k": ["v", None]},
    }
    encoder = encoder_for("avro", kind)
    assert encoder.schema is not None
    parsed = fastavro.parse_schema(json.loads(encoder.schema.text))
    rows = pa.array([row, {"byte": 2}], kind)
    first, second = encoder.values(rows).to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(first), parsed, None) == row
    assert fastavro.schemaless_reader(io.BytesIO(second), parsed, None) == dict.fromkeys(row) | {"byte": 2}
    must = encoder_for("avro", pa.struct([("ad", pa.string())]), schema=MUST)
    with pytest.raises(NotSerializable, match=r"{'ad': None} cannot be encoded"):
        must.values(pa.array([{"ad": None}], must.type))


def test_json_of_types_that_it_does_not_have() -> None:
    kind = pa.struct(
        [
            ("short", pa.decimal128(15, 2)),
            ("long", pa.decimal128(16, 2)),
            ("at", pa.timestamp("us", "Europe/Vienna")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("numbers", pa.map_(pa.int32(), pa.int32())),
            ("list", pa.list_(pa.int64())),
        ]
    )
    row = {
        "short": Decimal("1234567890123.45"),
        "long": Decimal("12345678901234.56"),
        "at": AT,
        "local": AT.replace(tzinfo=None),
        "day": AT.date(),
        "raw": b"\x00\xff",
        "numbers": {1: 2},
        "list": [None, 1],
    }
    encoder = encoder_for("json", kind)
    (value, empty) = encoder.values(pa.array([row, {}], kind)).to_pylist()
    assert value == (
        b'{"short":1234567890123.45,"long":"12345678901234.56","at":"2026-01-31T12:30:15.123456Z",'
        b'"local":"2026-01-31T12:30:15.123456","day":"2026-01-31","raw":"AP8=","numbers":{"1":2},"list":[null,1]}'
    )
    assert empty == b"{}"
    readable = decoder_for("json", schema=encoder.schema).columns(pa.array([value], pa.binary()))
    assert readable.failures == []
    assert readable.struct[0].as_py() == {
        **row,
        "short": 1234567890123.45,
        "long": "12345678901234.56",
        "local": "2026-01-31T12:30:15.123456",
        "numbers": [("1", 2)],
    }
    with pytest.raises(NotSerializable, match="not JSON compliant"):
        encoder_for("json", pa.float64()).values(pa.array([float("inf")]))


MUST = '{"type": "record", "name": "Must", "fields": [{"name": "ad", "type": "string"}]}'
UNION = """{"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "string", "long",
    {"type": "array", "items": "int"}, {"type": "record", "name": "In", "fields": [
        {"name": "x", "type": "int"}]}]}]}"""


def test_a_union_of_several_types_goes_there_and_back() -> None:
    decoder = decoder_for("avro", schema=UNION)
    encoder = encoder_for("avro", decoder.type, schema=UNION)
    members = [{"member0": "a"}, {"member1": 1}, {"member2": [1, 2]}, {"member3": {"x": 3}}, None]
    rows = pa.array([{"u": member} for member in members], decoder.type)
    assert decoder.columns(encoder.values(rows)).struct == rows
    simple = pa.struct([("u", pa.string())])  # one of the types alone will do
    written = encoder_for("avro", simple, schema=UNION).values(pa.array([{"u": "a"}], simple))
    assert decoder.columns(written).struct == rows.slice(0, 1)
    with pytest.raises(NotSerializable, match="a union must have one value, not 2"):
        encoder.values(pa.array([{"u": {"member0": "a", "member1": 1}}], decoder.type))


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("format", "kind", "schema", "said"),
    [
        ("avro", struct(u=pa.float64()), UNION, "column u is of type double; the schema has string"),
        ("avro", struct(u=pa.string(), v=pa.string()), UNION, "no field for column v"),
        ("avro", struct(), UNION, "has no field u, which has no default in the schema"),
        ("avro", pa.string(), UNION, "the value is of type string; the schema has the record R"),
        ("avro", struct(m=pa.map_(pa.int32(), pa.int32())), None, "column m has keys of type int32"),
        ("avro", struct(d=pa.duration("us")), None, "column d is of type duration"),
        ("avro", struct(a=struct(**{"b c": pa.int32()})), None, "column a.b c: a name in Avro"),
        ("json", struct(a=struct(d=pa.duration("us"))), None, "column a.d is of type duration"),
        ("protobuf", struct(ad=pa.int32()), PROTO, "shop.Other has no field for column ad"),
        ("protobuf", struct(unused=pa.string()), PROTO, "does not fit the field shop.Other.unused"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(
    format: str, kind: pa.DataType, schema: str | None, said: str
) -> None:
    with pytest.raises(DoesNotFit, match=said):
        encoder_for(format, kind, schema=schema)


def test_what_cannot_be_made() -> None:
    with pytest.raises(SchemaError, match="PROTOBUF needs a schema"):
        encoder_for("protobuf", CLICKS)
    with pytest.raises(SchemaError, match="must be json, avro or protobuf"):
        encoder_for("xml", CLICKS)
    with pytest.raises(SchemaError, match="the schema is of type AVRO, not JSON"):
        encoder_for("json", CLICKS, schema=Schema('"int"'))
