"""Encoding of columns as Avro: the schema that follows from their types, and the check against a given one.

A field without a column must have a default; a column without a field is an error, because it would be lost.
A union of several types takes a struct of `member0`, `member1` …, as decoding returns it. Times are passed as
numbers, as Avro stores them.
"""

import json
import re
from typing import Any

import pyarrow as pa

from headrace.schema_formats.schema import Imports
from headrace.schemas import avro
from headrace.schemas.encoding.encoder import Encoding, Shape, each, fields, pairs
from headrace.schemas.errors import DoesNotFit

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MICROS = {"timestamp-micros", "local-timestamp-micros", "time-micros"}
_MILLIS = {"timestamp-millis", "local-timestamp-millis", "time-millis"}
_NANOS = {"timestamp-nanos", "local-timestamp-nanos"}


def encoding(text: str, imports: Imports, kind: pa.DataType) -> Encoding:
    schema = avro.compiled(text, imports)
    handed, shape = _Fitting().fit(kind, schema, "")
    write = avro.writer(schema)
    return Encoding(handed, write if shape is None else lambda value: write(shape(value)))


# --- a schema from types ----------------------------------------------------------------------------------

_SIMPLE: list[tuple[Any, Any]] = [
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_signed_integer, "int"),
    (pa.types.is_uint16, "int"),
    (pa.types.is_uint8, "int"),
    (pa.types.is_float64, "double"),
    (pa.types.is_floating, "float"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
    (pa.types.is_time, {"type": "long", "logicalType": "time-micros"}),
]


def derived(kind: pa.DataType, name: str) -> str:
    """The schema of columns of this type. Every field is nullable with the default null, even if the
    DataFrame declares it NOT NULL: only then can later versions add and remove columns.
    """
    return json.dumps(_schema(kind, name, ""), ensure_ascii=False)


def _schema(kind: pa.DataType, name: str, path: str) -> Any:
    for is_of, schema in _SIMPLE:
        if is_of(kind):
            return schema
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz is not None else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": name, "fields": [_field(each, name, path) for each in kind]}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, name, path)}
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise DoesNotFit(
                f"{_named(path)} has keys of type {kind.key_type}; keys of Avro maps are strings"
            )
        return {"type": "map", "values": _nullable(kind.item_type, name, path)}
    raise DoesNotFit(f"{_named(path)} is of type {kind}, which Avro does not have")


def _field(field: pa.Field, within: str, path: str) -> dict[str, Any]:
    path = f"{path}.{field.name}" if path else field.name
    if not _NAME.fullmatch(field.name):
        raise DoesNotFit(f"{_named(path)}: a name in Avro has only letters, digits and _; rename the column")
    # records inside are named by the way to them, so that two of one name do not meet
    schema = _nullable(field.type, f"{within}_{field.name}", path)
    return {"name": field.name, "type": schema, "default": None}


def _nullable(kind: pa.DataType, name: str, path: str) -> Any:
    schema = _schema(kind, name, path)
    return schema if schema == "null" else ["null", schema]


def _named(path: str) -> str:
    return f"column {path}" if path else "the value"


# --- types to a schema ------------------------------------------------------------------------------------


class _Fitting:
    """The type in which rows are passed, and the functions that convert their values."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def fit(self, kind: pa.DataType, schema: Any, path: str) -> tuple[pa.DataType, Shape]:
        if isinstance(schema, list):
            return self._union(kind, schema, path)
        if isinstance(schema, str):
            schema = self._known.get(schema, {"type": schema})
        logical = schema.get("logicalType")
        if logical is not None:
            found = _logical(kind, schema, logical)
            if found is not None:
                return found
        match schema["type"]:
            case "record" | "error":
                self._known[schema["name"]] = schema
                return self._record(kind, schema, path)
            case "array" if pa.types.is_list(kind) or pa.types.is_large_list(kind):
                inner, shape = self.fit(kind.value_type, schema["items"], path)
                return pa.list_(inner), each(shape)
            case "map" if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
                inner, shape = self.fit(kind.item_type, schema["values"], path)
                return pa.map_(pa.string(), inner), pairs(shape)
            case "enum" | "fixed" as named:
                self._known[schema["name"]] = schema
                return self._simple(kind, "string" if named == "enum" else "bytes", path), None
            case str(simple):
                return self._simple(kind, simple, path), None
            case inner:
                return self.fit(kind, inner, path)

    def _record(self, kind: pa.DataType, schema: dict[str, Any], path: str) -> tuple[pa.DataType, Shape]:
        if not pa.types.is_struct(kind):
            raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has the record {schema['name']}")
        wanted = {field["name"]: field for field in schema["fields"]}
        handed, shapes = [], {}
        for field in kind:
            inside = f"{path}.{field.name}" if path else field.name
            if field.name not in wanted:
                raise DoesNotFit(f"the schema has no field for column {inside}")
            inner, shapes[field.name] = self.fit(field.type, wanted.pop(field.name)["type"], inside)
            handed.append(pa.field(field.name, inner))
        for name, field in wanted.items():
            if "default" not in field:
                raise DoesNotFit(f"{_named(path)} has no field {name}, which has no default in the schema")
        return pa.struct(handed), fields(shapes)

    def _union(self, kind: pa.DataType, branches: list[Any], path: str) -> tuple[pa.DataType, Shape]:
        real = [branch for branch in branches if branch != "null"]
        if pa.types.is_null(kind):
            return kind, None
        if len(real) > 1 and pa.types.is_struct(kind) and kind.num_fields == len(real):
            names = [field.name for field in kind]
            if names == [f"member{number}" for number in range(len(real))]:
                return self._members(kind, real, path)
        refusals = []
        for branch in real:
            try:
                return self.fit(kind, branch, path)
            except DoesNotFit as refusal:
                refusals.append(refusal)
        raise refusals[0] if refusals else DoesNotFit(f"{_named(path)} is {kind}, and the schema wants null")

    def _members(self, kind: pa.DataType, real: list[Any], path: str) -> tuple[pa.DataType, Shape]:
        found = [
            self.fit(field.type, branch, f"{path}.{field.name}")
            for field, branch in zip(kind, real, strict=True)
        ]
        handed = pa.struct([(field.name, inner) for field, (inner, _) in zip(kind, found, strict=True)])
        shapes = [shape for _, shape in found]
        tags = [_tag(branch) for branch in real]

        def shaped(value: dict[str, Any]) -> Any:
            chosen = [number for number, member in enumerate(value.values()) if member is not None]
            if not chosen:
                return None
            if len(chosen) > 1:
                raise ValueError(f"a union must have one value, not {len(chosen)}: {value}")
            (number,) = chosen
            member, shape = value[f"member{number}"], shapes[number]
            # with its type beside it, so that nobody has to guess
            return tags[number], member if shape is None else shape(member)

        return handed, shaped

    @staticmethod
    def _simple(kind: pa.DataType, wanted: str, path: str) -> pa.DataType:
        is_whole, is_text = pa.types.is_integer(kind), pa.types.is_string(kind)
        match wanted:
            case "boolean" if pa.types.is_boolean(kind):
                return kind
            case "int" if is_whole:
                return pa.int32()
            case "long" if is_whole:
                return pa.int64()
            case "float" if is_whole or pa.types.is_floating(kind):
                return pa.float32()
            case "double" if is_whole or pa.types.is_floating(kind):
                return pa.float64()
            case "string" if is_text or pa.types.is_large_string(kind):
                return pa.string()
            case "bytes" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
                return pa.binary()
            case "null" if pa.types.is_null(kind):
                return kind
        raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has {wanted}")


def _logical(kind: pa.DataType, schema: dict[str, Any], logical: str) -> tuple[pa.DataType, Shape] | None:
    """None: it is written as what is below the logical type."""
    if logical == "decimal" and pa.types.is_decimal(kind):
        return pa.decimal128(schema["precision"], schema.get("scale", 0)), None
    if logical == "date" and pa.types.is_date(kind):
        return pa.int32(), None
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        if logical in _MICROS:
            return pa.int64(), _scaled(kind.unit, "us")
        if logical in _MILLIS:
            return pa.int64(), _scaled(kind.unit, "ms")
        if logical in _NANOS:
            return pa.int64(), _scaled(kind.unit, "ns")
    return None


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _scaled(unit: str, wanted: str) -> Shape:
    have, want = _PER_SECOND[unit], _PER_SECOND[wanted]
    if have == want:
        return None
    if have < want:
        return lambda value: value * (want // have)
    return lambda value: value // (have // want)


def _tag(branch: Any) -> str:
    """The name of a union's branch in fastavro."""
    if isinstance(branch, dict):
        return str(
            branch["name"] if branch["type"] in ("record", "error", "enum", "fixed") else branch["type"]
        )
    return str(branch)
