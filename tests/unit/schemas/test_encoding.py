"""Arrow columns as Avro, JSON and Protobuf: what is written is read again, and what does not fit is told."""

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
from headrace.schemas import DoesNotFit, decoder_for, encoder_for

AT = dt.datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=dt.UTC)
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Order {
  string name = 1;
  double price = 2;
  map<string, int64> tags = 3;
  google.protobuf.Timestamp at = 4;
  google.protobuf.Duration took = 5;
  google.protobuf.Int32Value maybe = 6;
  repeated Color colors = 7;
  bytes raw = 8;
  bool paid = 9;
  oneof by { string web = 10; uint64 phone = 11; }
}
enum Color { RED = 0; GREEN = 1; }
"""
ORDER = pa.struct(
    [
        ("name", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("us")),
        ("maybe", pa.int32()),
        ("colors", pa.list_(pa.string())),
        ("raw", pa.binary()),
        ("paid", pa.bool_()),
        ("web", pa.string()),
        ("phone", pa.uint64()),
    ]
)


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


def there_and_back(format: str, kind: pa.DataType, row: dict[str, Any], schema: str) -> dict[str, Any]:
    written = encoder_for(format, kind, schema=schema).values(pa.array([row], kind))
    decoded = decoder_for(format, schema=schema).columns(written)
    assert decoded.failures == []
    found: dict[str, Any] = decoded.struct[0].as_py()
    return {name: found[name] for name in row}


def test_protobuf_goes_there_and_back() -> None:
    row = {
        "name": "tea",
        "price": 1.5,
        "tags": [("a", 1)],
        "at": AT,
        "took": dt.timedelta(microseconds=-1_500_000),
        "maybe": 0,
        "colors": ["GREEN", "RED"],
        "raw": b"\xff",
        "paid": True,
        "phone": 2**64 - 1,
    }
    assert there_and_back("protobuf", ORDER, row, PROTO) == row


def test_two_members_of_a_oneof_are_an_error() -> None:
    encoder = encoder_for("protobuf", ORDER, schema=PROTO)
    with pytest.raises(NotSerializable, match="web and phone cannot be set together"):
        encoder.values(pa.array([{"web": "x", "phone": 1}], ORDER))


def test_a_number_of_an_enum_that_has_no_name() -> None:
    kind = struct(colors=pa.list_(pa.string()))
    by_text = encoder_for("protobuf", kind, schema=PROTO).values(pa.array([{"colors": ["7"]}], kind))
    numbers = struct(colors=pa.list_(pa.int32()))
    by_number = encoder_for("protobuf", numbers, schema=PROTO).values(pa.array([{"colors": [7]}], numbers))
    assert by_text.to_pylist() == by_number.to_pylist()


AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "name", "type": "string"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": null},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "tags", "type": {"type": "map", "values": "long"}},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "count", "type": "int"}]}}},
    {"name": "note", "type": "string", "default": "-"}]}"""


def test_avro_goes_there_and_back() -> None:
    kind = struct(
        name=pa.string(),
        amount=pa.decimal128(9, 2),
        at=pa.timestamp("us", "UTC"),
        day=pa.date32(),
        tags=pa.map_(pa.string(), pa.int64()),
        lines=pa.list_(struct(count=pa.int32())),
    )
    row = {
        "name": "tea",
        "amount": Decimal("-12.34"),
        "at": AT.replace(microsecond=123_000),
        "day": AT.date(),
        "tags": [("a", 1)],
        "lines": [{"count": 2}],
    }
    assert there_and_back("avro", kind, row, AVRO) == row
    with pytest.raises(DoesNotFit, match="has no field name, which has no default in the schema"):
        encoder_for("avro", struct(day=pa.date32()), schema=AVRO)


def test_every_type_makes_an_avro_schema_that_fastavro_takes() -> None:
    kind = pa.struct(
        [
            pa.field("byte", pa.int8(), nullable=False),
            ("single", pa.float32()),
            ("amount", pa.decimal128(38, 10)),
            ("time", pa.time64("us")),
            ("at", pa.timestamp("us", "Europe/Vienna")),
            ("local", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("nothing", pa.null()),
            ("list", pa.list_(struct(x=pa.int32(), list=struct(y=pa.int32())))),
            ("map", pa.map_(pa.string(), pa.list_(pa.string()))),
        ]
    )
    row = {
        "byte": 1,
        "single": 0.5,
        "amount": Decimal("-12345678901234567890.0123456789"),
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
    (written,) = encoder.values(pa.array([row], kind)).to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(written), parsed, None) == row


def test_json_has_text_for_what_it_has_no_type_for() -> None:
    kind = struct(
        short=pa.decimal128(15, 2),
        long=pa.decimal128(16, 2),
        at=pa.timestamp("us", "Europe/Vienna"),
        day=pa.date32(),
        raw=pa.binary(),
        numbers=pa.map_(pa.int32(), pa.int32()),
        list=pa.list_(pa.int64()),
        inner=struct(flag=pa.bool_()),
    )
    row = {
        "short": Decimal("1234567890123.45"),
        "long": Decimal("12345678901234.56"),
        "at": AT,
        "day": AT.date(),
        "raw": b"\x00\xff",
        "numbers": {1: 2},
        "list": [None, 1],
        "inner": {"flag": True},
    }
    encoder = encoder_for("json", kind)
    value, empty = encoder.values(pa.array([row, {}], kind)).to_pylist()
    assert json.loads(value) == {
        "short": 1234567890123.45,
        "long": "12345678901234.56",
        "at": "2026-01-31T12:30:15.123456Z",
        "day": "2026-01-31",
        "raw": "AP8=",
        "numbers": {"1": 2},
        "list": [None, 1],
        "inner": {"flag": True},
    }
    assert empty == b"{}"
    assert encoder.schema is not None
    made = json.loads(encoder.schema.text)
    assert made["properties"]["list"] == {"type": "array", "items": {"type": ["integer", "null"]}}
    assert made["properties"]["at"] == {"type": "string", "format": "date-time"}
    assert made["additionalProperties"] is False
    readable = decoder_for("json", schema=encoder.schema).columns(pa.array([value], pa.binary()))
    assert readable.failures == []
    assert readable.struct[0].as_py()["raw"] == b"\x00\xff"


@pytest.mark.parametrize(
    ("format", "kind", "schema", "said"),
    [
        ("avro", struct(m=pa.map_(pa.int32(), pa.int32())), None, "column m has keys of type int32"),
        ("avro", struct(d=pa.duration("us")), None, "column d is of type duration"),
        ("avro", pa.string(), AVRO, "the value is of type string; the schema has the record Order"),
        ("json", struct(a=struct(d=pa.duration("us"))), None, "column a.d is of type duration"),
        ("protobuf", struct(ad=pa.int32()), PROTO, "shop.Order has no field for column ad"),
        ("protobuf", struct(paid=pa.string()), PROTO, "does not fit the field shop.Order.paid"),
        ("protobuf", struct(tags=pa.string()), PROTO, "column tags is of type string; the schema has a map"),
        ("protobuf", struct(colors=pa.string()), PROTO, "the schema has an array"),
        ("protobuf", struct(at=pa.string()), PROTO, "the schema has a google.protobuf.Timestamp"),
        ("protobuf", struct(took=pa.int64()), PROTO, "the schema has a google.protobuf.Duration"),
        ("protobuf", pa.string(), PROTO, "the value is of type string; the schema has the message Order"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(
    format: str, kind: pa.DataType, schema: str | None, said: str
) -> None:
    with pytest.raises(DoesNotFit, match=said):
        encoder_for(format, kind, schema=schema)
