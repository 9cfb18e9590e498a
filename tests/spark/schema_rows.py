"""One record with the types that people use, in three formats: how each party writes it and shows it."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

AT_MS = dt.datetime(2026, 1, 31, 12, 30, 15, 123000, tzinfo=dt.UTC)
AT_US = dt.datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=dt.UTC)
DAY = dt.date(2026, 1, 31)
ID = "6f4e0a52-7d2c-4c3a-9a53-0b9f6d1f0c11"

AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "writer", "type": "string"},
    {"name": "is_paid", "type": "boolean"},
    {"name": "count", "type": "int"},
    {"name": "total", "type": "long"},
    {"name": "weight", "type": "float"},
    {"name": "score", "type": "double"},
    {"name": "user", "type": {"type": "record", "name": "User", "fields": [
        {"name": "name", "type": "string"},
        {"name": "address", "type": ["null", {"type": "record", "name": "Address", "fields": [
            {"name": "city", "type": "string"}]}], "default": null}]}},
    {"name": "guest", "type": ["null", "User"], "default": null},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "item", "type": "string"},
        {"name": "price", "type":
            {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}}]}}},
    {"name": "tags", "type": {"type": "map", "values": "long"}},
    {"name": "notes", "type": {"type": "map", "values": ["null", "string"]}},
    {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}},
    {"name": "comment", "type": ["null", "string"], "default": null},
    {"name": "absent", "type": ["null", "string"], "default": null},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "at_us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "raw", "type": "bytes"},
    {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
    {"name": "cents", "type": {"type": "fixed", "name": "Cents", "size": 8,
        "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "either", "type": ["null", "string", "long", "Line"]}]}"""
AVRO_TYPES = """writer string, is_paid boolean, count int, total bigint, weight float, score double,
    user struct<name: string, address: struct<city: string>>,
    guest struct<name: string, address: struct<city: string>>,
    lines array<struct<item: string, price: decimal(20, 4)>>, tags map<string, bigint>,
    notes map<string, string>, color string, comment string, absent string, day date, at_ms timestamp,
    at_us timestamp, local timestamp_ntz, id string, raw binary, digest binary, cents decimal(10, 2),
    either struct<member0: string, member1: bigint, member2: struct<item: string, price: decimal(20, 4)>>"""

JSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "additionalProperties": false, "required": ["writer"], "properties": {
    "writer": {"type": "string"},
    "is_paid": {"type": "boolean"},
    "total": {"type": "integer"},
    "score": {"type": "number"},
    "user": {"type": "object", "properties": {"name": {"type": "string"},
        "address": {"oneOf": [{"type": "null"},
            {"type": "object", "properties": {"city": {"type": "string"}}}]}}},
    "lines": {"type": "array", "items": {"type": "object", "properties": {
        "item": {"type": "string"}, "price": {"type": "number"}}}},
    "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
    "color": {"type": "string", "enum": ["RED", "GREEN"]},
    "comment": {"type": ["null", "string"]},
    "absent": {"type": ["null", "string"]},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "id": {"type": "string", "format": "uuid"},
    "raw": {"type": "string", "contentEncoding": "base64"}}}"""
JSON_TYPES = """writer string, is_paid boolean, total bigint, score double,
    user struct<name: string, address: struct<city: string>>,
    lines array<struct<item: string, price: double>>, tags map<string, bigint>, color string,
    comment string, absent string, day date, at timestamp, id string, raw binary"""

PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

message Order {
  string writer = 1;
  bool is_paid = 2;
  int32 count = 3;
  sint64 total = 4;
  uint64 huge = 5;
  fixed32 small = 6;
  float weight = 7;
  double score = 8;
  bytes raw = 9;
  User user = 10;
  repeated Line lines = 11;
  map<string, int64> tags = 12;
  map<int32, Line> by_number = 13;
  Color color = 14;
  repeated Color colors = 15;
  optional string comment = 16;
  optional int32 absent = 17;
  oneof payment { string card = 18; Cash cash = 19; }
  google.protobuf.Timestamp at = 20;
  google.protobuf.Duration took = 21;
  google.protobuf.Int64Value limit = 22;
  google.protobuf.StringValue nothing = 23;

  message User { string name = 1; Address address = 2; message Address { string city = 1; } }
  message Cash { int64 cents = 1; }
}
message Line { string item = 1; double price = 2; }
enum Color { UNKNOWN = 0; RED = 1; GREEN = 2; }
"""
PROTO_TYPES = """writer string, is_paid boolean, count int, total bigint, huge decimal(20, 0), small bigint,
    weight float, score double, raw binary, user struct<name: string, address: struct<city: string>>,
    lines array<struct<item: string, price: double>>, tags map<string, bigint>,
    by_number map<int, struct<item: string, price: double>>, color string, colors array<string>,
    comment string, absent int, card string, cash struct<cents: bigint>, at timestamp,
    took interval day to second, limit bigint, nothing string"""


def avro_value(writer: str) -> dict[str, Any]:
    """As clients have it."""
    line = {"item": "tea", "price": Decimal("1234567890123456.7891")}
    return {
        "writer": writer,
        "is_paid": True,
        "count": -(2**31),
        "total": 2**63 - 1,
        "weight": 1.5,
        "score": 0.1,
        "user": {"name": "Ada", "address": {"city": "Graz"}},
        "guest": None,
        "lines": [line, {"item": "", "price": Decimal("-0.0001")}],
        "tags": {"a": 1, "ü": -2},
        "notes": {"x": None, "y": "z"},
        "color": "GREEN",
        "comment": "é",
        "absent": None,
        "day": DAY,
        "at_ms": AT_MS,
        "at_us": AT_US,
        "local": AT_US.replace(tzinfo=None),
        "id": uuid.UUID(ID),
        "raw": b"\x00\xff",
        "digest": b"\x01\x02\x03\x04",
        "cents": Decimal("-12345678.90"),
        "either": {"item": "cup", "price": Decimal("2.5000")},
    }


def avro_row(writer: str) -> dict[str, Any]:
    """As Spark has it."""
    value = avro_value(writer)
    member = value["either"]
    return value | {"id": ID, "either": {"member0": None, "member1": None, "member2": member}}


def json_value(writer: str) -> dict[str, Any]:
    return {
        "writer": writer,
        "is_paid": True,
        "total": 2**53 + 1,
        "score": 0.1,
        "user": {"name": "Ada", "address": {"city": "Graz"}},
        "lines": [{"item": "tea", "price": 1.5}],
        "tags": {"a": 1, "ü": -2},
        "color": "GREEN",
        "comment": "é",
        "day": DAY.isoformat(),
        "at": AT_US.isoformat().replace("+00:00", "Z"),
        "id": ID,
        "raw": "AP8=",
    }


def json_row(writer: str) -> dict[str, Any]:
    return json_value(writer) | {"absent": None, "day": DAY, "at": AT_US, "raw": b"\x00\xff"}


def proto_value(writer: str) -> dict[str, Any]:
    """What a message's class takes."""
    seconds = int(AT_US.timestamp())
    return {
        "writer": writer,
        "is_paid": True,
        "count": -1,
        "total": -(2**63),
        "huge": 2**64 - 1,
        "small": 2**32 - 1,
        "weight": 1.5,
        "score": 0.1,
        "raw": b"\x00\xff",
        "user": {"name": "Ada", "address": {"city": "Graz"}},
        "lines": [{"item": "tea", "price": 1.5}, {}],
        "tags": {"a": 1, "ü": -2},
        "by_number": {7: {"item": "cup", "price": 2.0}},
        "color": "GREEN",
        "colors": ["RED", "GREEN"],
        "comment": "",
        "cash": {"cents": 5},
        "at": {"seconds": seconds, "nanos": 123_456_000},
        "took": {"seconds": -1, "nanos": -500_000_000},
        "limit": {"value": 0},
    }


def proto_row(writer: str) -> dict[str, Any]:
    value = proto_value(writer)
    return value | {
        "huge": Decimal(2**64 - 1),
        "lines": [{"item": "tea", "price": 1.5}, {"item": "", "price": 0.0}],
        "absent": None,
        "card": None,
        "at": AT_US,
        "took": dt.timedelta(seconds=-1.5),
        "limit": 0,
        "nothing": None,
    }
