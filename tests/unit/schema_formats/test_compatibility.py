"""Which schema may follow which: each rule of each format, both ways."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.schema_formats.formats import Level, obstacles, parse, violations
from headrace.schema_formats.schema import InvalidSchema, SchemaType, TooComplex


def found(kind: SchemaType, reader: Any, writer: Any) -> list[str]:
    """The names of what keeps the reader from reading what the writer wrote."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (reader, writer)]
    return [line.partition(" ")[0] for line in obstacles(*(parse(kind, text) for text in texts))]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


X = field("x", "int")
CHAIN = record(field("next", ["null", "R"]))


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("long", "int", []),
        ("int", "long", ["TYPE_MISMATCH"]),
        ("string", "bytes", []),
        ("double", "long", []),
        (record(X), record(X, field("y", "int")), []),
        (record(X, field("y", "int")), record(X), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
        (record(X, field("y", "int", default=1)), record(X), []),
        (record(field("y", "int", aliases=["x"])), record(X), []),
        (record(X, name="Q"), record(X), ["NAME_MISMATCH"]),
        (record(X, name="Q", aliases=["R"]), record(X), []),
        (record(X, name="other.R"), record(X), []),
        (record(field("x", "string")), record(X), ["TYPE_MISMATCH"]),
        (enum("A", "B"), enum("A"), []),
        (enum("A"), enum("A", "B"), ["MISSING_ENUM_SYMBOLS"]),
        (enum("A", default="A"), enum("A", "B"), []),
        (["null", "int"], "int", []),
        ("int", ["null", "int"], ["TYPE_MISMATCH"]),
        (["null", "int"], ["null", "string"], ["MISSING_UNION_BRANCH"]),
        (["null", "long"], ["null", "int"], []),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, ["TYPE_MISMATCH"]),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, []),
        (
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 5},
            ["FIXED_SIZE_MISMATCH"],
        ),
        (CHAIN, CHAIN, []),
    ],
)
def test_avro(reader: Any, writer: Any, expected: list[str]) -> None:
    assert found(SchemaType.AVRO, reader, writer) == expected


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
TREE = {"$ref": "#/$defs/n", "$defs": {"n": closed(left={"$ref": "#/$defs/n"}, name=TEXT)}}


@pytest.mark.parametrize(
    ("newer", "older", "expected"),
    [
        ({}, TEXT, []),
        (TEXT, {}, ["TYPE_CHANGED"]),
        (NUMBER, WHOLE, []),
        (WHOLE, NUMBER, ["TYPE_NARROWED"]),
        (TEXT, WHOLE, ["TYPE_CHANGED"]),
        ({"type": ["string", "integer"]}, TEXT, []),
        (TEXT, {"type": ["string", "integer"]}, ["TYPE_CHANGED"]),
        ({"type": "string", "maxLength": 5}, TEXT, ["MAX_LENGTH_ADDED"]),
        ({"type": "string", "maxLength": 6}, {"type": "string", "maxLength": 5}, []),
        ({"type": "string", "pattern": "a"}, TEXT, ["PATTERN_ADDED"]),
        ({"type": "number", "minimum": 3}, {"type": "number", "minimum": 2}, ["MINIMUM_INCREASED"]),
        ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 4}, []),
        ({"type": "number", "multipleOf": 4}, {"type": "number", "multipleOf": 2}, ["MULTIPLE_OF_EXPANDED"]),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, []),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_NARROWED"]),
        (closed(a=TEXT, b=WHOLE), closed(a=TEXT), []),
        (opened(a=TEXT, b=WHOLE), opened(a=TEXT), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (opened(a=TEXT, b={}), opened(a=TEXT), []),
        (opened(a=TEXT), opened(a=TEXT, b=WHOLE), []),
        (closed(a=TEXT), closed(a=TEXT, b=WHOLE), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        ({**opened(a=TEXT), "required": ["a"]}, opened(a=TEXT), ["REQUIRED_ATTRIBUTE_ADDED"]),
        ({**opened(a={**TEXT, "default": ""}), "required": ["a"]}, opened(a=TEXT), []),
        (
            {**closed(a=TEXT, b=WHOLE), "required": ["b"]},
            closed(a=TEXT),
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
        ),
        (closed(a=TEXT), opened(a=TEXT), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (opened(a=TEXT), closed(a=TEXT), []),
        (
            {**opened(x1=TEXT), "additionalProperties": False},
            {"type": "object", "patternProperties": {"^x": WHOLE}, "additionalProperties": False},
            ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
        ),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": WHOLE}, []),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": WHOLE}, ["TYPE_CHANGED"]),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_ADDED"]),
        ({"oneOf": [TEXT, WHOLE]}, TEXT, []),
        ({"oneOf": [TEXT, WHOLE]}, {"oneOf": [WHOLE, TEXT]}, []),
        ({"oneOf": [TEXT]}, {"oneOf": [TEXT, WHOLE]}, ["SUM_TYPE_NARROWED"]),
        ({"allOf": [TEXT, {"minLength": 1}]}, {"allOf": [TEXT]}, ["PRODUCT_TYPE_EXTENDED"]),
        ({"anyOf": [TEXT, WHOLE]}, {"oneOf": [TEXT, WHOLE]}, []),
        ({"oneOf": [TEXT, WHOLE]}, {"anyOf": [TEXT, WHOLE]}, ["COMBINED_TYPE_CHANGED"]),
        (TREE, TREE, []),
    ],
)
def test_json(newer: Any, older: Any, expected: list[str]) -> None:
    assert found(SchemaType.JSON, newer, older) == expected


def proto(body: str, head: str = 'syntax = "proto3";') -> str:
    return f"{head} message M {{ {body} }} enum E {{ A = 0; }} message N {{ int32 x = 1; }}"


@pytest.mark.parametrize(
    ("newer", "older", "expected"),
    [
        (proto("int32 a = 1; string b = 2;"), proto("int32 a = 1;"), []),
        (proto(""), proto("int32 a = 1;"), []),
        (proto("int64 renamed = 1;"), proto("int32 a = 1;"), []),
        (proto("sint32 a = 1;"), proto("int32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
        (proto("E a = 1;"), proto("int32 a = 1;"), []),
        (proto("bytes a = 1;"), proto("string a = 1;"), []),
        (proto("N a = 1;"), proto("string a = 1;"), ["FIELD_KIND_CHANGED"]),
        (proto("repeated int32 a = 1;"), proto("int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED"]),
        (proto("repeated string a = 1;"), proto("string a = 1;"), []),
        (proto("map<string, int32> a = 1;"), proto("N a = 1;"), ["FIELD_KIND_CHANGED"]),
        (proto("oneof o { int32 a = 1; }"), proto("int32 a = 1;"), []),
        (
            proto("oneof o { int32 a = 1; int32 b = 2; }"),
            proto("int32 a = 1; int32 b = 2;"),
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        (
            proto("oneof o { int32 a = 1; }"),
            proto("oneof o { int32 a = 1; int32 b = 2; }"),
            ["ONEOF_FIELD_REMOVED"],
        ),
        # a field that moves out of its oneof is still there, and so is one whose oneof gets another name
        (
            proto("oneof o { int32 a = 1; } int32 b = 2;"),
            proto("oneof o { int32 a = 1; int32 b = 2; }"),
            [],
        ),
        (
            proto("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"),
            proto("oneof o { int32 a = 1; int32 b = 2; }"),
            [],
        ),
        (
            proto("oneof renamed { int32 a = 1; int32 b = 2; }"),
            proto("oneof o { int32 a = 1; int32 b = 2; }"),
            [],
        ),
        (proto("int32 c = 3;"), proto("oneof o { int32 a = 1; int32 b = 2; } int32 c = 3;"), []),
        (
            proto("oneof o { int32 a = 1; } string b = 2;"),
            proto("oneof o { int32 a = 1; int32 b = 2; }"),
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
        (proto("", 'syntax = "proto3"; package p;'), proto(""), ["PACKAGE_CHANGED"]),
        ('syntax = "proto3"; message M {}', proto(""), ["MESSAGE_REMOVED"]),
        (
            proto("required int32 a = 1;", 'syntax = "proto2";').replace("{ int32 x", "{ optional int32 x"),
            proto("", 'syntax = "proto2";').replace("{ int32 x", "{ optional int32 x"),
            ["REQUIRED_FIELD_ADDED"],
        ),
    ],
)
def test_protobuf(newer: str, older: str, expected: list[str]) -> None:
    assert found(SchemaType.PROTOBUF, newer, older) == expected


def test_levels() -> None:
    one, two, three = (
        parse(SchemaType.AVRO, json.dumps(record(*fields)))
        for fields in ([X, field("y", "int")], [X], [X, field("y", "string", default="")])
    )
    # three reads two and not one: y was an int there
    assert violations(Level.BACKWARD, three, [one, two]) == []
    assert violations(Level.BACKWARD_TRANSITIVE, three, [one, two]) != []
    assert violations(Level.FORWARD, three, [one, two]) == []
    assert violations(Level.FORWARD_TRANSITIVE, three, [one, two]) != []
    assert violations(Level.FULL, three, [one, two]) == []
    assert violations(Level.FULL_TRANSITIVE, three, [one, two]) != []
    assert violations(Level.NONE, three, [one]) == []
    assert violations(Level.BACKWARD, two, [one]) == []
    assert violations(Level.FORWARD, two, [one]) != []
    assert violations(Level.BACKWARD, parse(SchemaType.JSON, "{}"), [two]) != []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SchemaType.AVRO, "{"),
        (SchemaType.AVRO, '"nothing"'),
        (SchemaType.AVRO, '{"type": "record", "name": "R"}'),
        (SchemaType.AVRO, json.dumps(record(field("x", "int", default="a")))),
        (SchemaType.AVRO, json.dumps(record(X, X))),
        (SchemaType.AVRO, json.dumps(record(field("a", enum("A")), field("b", enum("B"))))),
        (SchemaType.AVRO, '["int", "int"]'),
        (SchemaType.AVRO, '["int", ["string"]]'),
        (SchemaType.AVRO, '{"type": "enum", "name": "E", "symbols": []}'),
        (SchemaType.AVRO, "[" * 100_000),
        (SchemaType.JSON, "text"),
        (SchemaType.JSON, '{"type": "text"}'),
        (SchemaType.JSON, '{"$ref": "#/nowhere"}'),
        (SchemaType.JSON, '{"$ref": "other.json"}'),
        (SchemaType.JSON, '{"$ref": "#"}'),
        (SchemaType.JSON, '{"properties": []}'),
        (SchemaType.JSON, '{"minLength": "a"}'),
        (SchemaType.PROTOBUF, "message M {"),
        (SchemaType.PROTOBUF, 'syntax = "proto4";'),
        (SchemaType.PROTOBUF, 'edition = "2023";'),
        (SchemaType.PROTOBUF, proto("int32 a = 0;")),
        (SchemaType.PROTOBUF, proto("int32 a = 19000;")),
        (SchemaType.PROTOBUF, proto("int32 a = 1; int32 b = 1;")),
        (SchemaType.PROTOBUF, proto("int32 a = 1; int32 a = 2;")),
        (SchemaType.PROTOBUF, proto("Unknown a = 1;")),
        (SchemaType.PROTOBUF, proto("map<double, int32> a = 1;")),
        (SchemaType.PROTOBUF, 'import "missing.proto";'),
        (SchemaType.PROTOBUF, "message M { int32 a = 1; }"),
        (SchemaType.PROTOBUF, "message M { " * 5_000),
    ],
)
def test_what_is_no_schema(kind: SchemaType, text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(kind, text)


def test_a_comparison_ends() -> None:
    """Unions of unions ask for a number of comparisons that doubles with each level."""
    part: Any = TEXT
    for level in range(10):
        part = {"oneOf": [part, {"type": "array", "items": part, "maxItems": level}]}
    other = json.loads(json.dumps(part).replace('"string"', '"boolean"'))
    with pytest.raises(TooComplex):
        found(SchemaType.JSON, part, other)


def test_a_pattern_cannot_keep_the_broker_busy() -> None:
    older = {"type": "object", "patternProperties": {"(a+)+$": TEXT}, "additionalProperties": False}
    assert found(SchemaType.JSON, closed(**{"a" * 60 + "!": TEXT}), older) is not None
    with pytest.raises(InvalidSchema, match="is not a valid regular expression"):
        found(
            SchemaType.JSON,
            closed(a=TEXT),
            {"type": "object", "patternProperties": {"(": TEXT}, "additionalProperties": False},
        )
