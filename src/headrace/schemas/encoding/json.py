"""Encoding of columns as JSON, and the schema that follows from their types.

Null fields are left out, as by Spark's to_json. Times are text in ISO 8601, bytes are text in base64;
decimals are numbers if a double has all of their digits, and text otherwise. Objects of a derived schema are
closed and have no required fields: only then can a later version have more fields.
"""

import base64
import json
from typing import Any

import pyarrow as pa

from headrace.schemas.encoding.encoder import Encoding, Shape, each, pairs
from headrace.schemas.errors import DoesNotFit
from headrace.schemas.serializers import json_bytes

DIGITS_MAX = 15  # that a double keeps
DRAFT = "http://json-schema.org/draft-07/schema#"


def encoding(kind: pa.DataType) -> Encoding:
    handed, shape = _handed(kind, "")
    return Encoding(handed, json_bytes if shape is None else lambda value: json_bytes(shape(value)))


def _handed(kind: pa.DataType, path: str) -> tuple[pa.DataType, Shape]:
    """The type in which rows are passed, and the function that converts their values."""
    if pa.types.is_struct(kind):
        found = [(field.name, *_handed(field.type, _inside(path, field.name))) for field in kind]
        return pa.struct([(name, inner) for name, inner, _ in found]), _object(
            {name: shape for name, _, shape in found}
        )
    if pa.types.is_map(kind):
        inner, shape = _handed(kind.item_type, path)
        return pa.map_(pa.string(), inner), pairs(shape)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner, shape = _handed(kind.value_type, path)
        return pa.list_(inner), each(shape)
    if pa.types.is_timestamp(kind):
        return pa.string(), lambda text: text.replace(" ", "T")
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string(), None
    if pa.types.is_decimal(kind):
        return pa.string() if kind.precision > DIGITS_MAX else pa.float64(), None
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary(), lambda data: base64.b64encode(data).decode()
    if _is_simple(kind):
        return kind, None
    raise DoesNotFit(f"{_named(path)} is of type {kind}, which JSON does not have")


def _is_simple(kind: pa.DataType) -> bool:
    return any(
        is_of(kind)
        for is_of in (
            pa.types.is_null,
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_string,
            pa.types.is_large_string,
        )
    )


def _object(shapes: dict[str, Shape]) -> Shape:
    needed = {name: shape for name, shape in shapes.items() if shape is not None}

    def shaped(value: dict[str, Any]) -> dict[str, Any]:
        for name, shape in needed.items():
            if (found := value[name]) is not None:
                value[name] = shape(found)
        if None in value.values():
            return {name: each for name, each in value.items() if each is not None}
        return value

    return shaped


def derived(kind: pa.DataType, name: str) -> str:
    """The schema of columns of this type."""
    return json.dumps({"$schema": DRAFT, "title": name} | _schema(kind, ""), ensure_ascii=False)


def _schema(kind: pa.DataType, path: str) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        properties = {field.name: _schema(field.type, _inside(path, field.name)) for field in kind}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _item(kind.item_type, path)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _item(kind.value_type, path)}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision <= DIGITS_MAX):
        return {"type": "number"}
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return {"type": "string", "format": "date-time"}
    if pa.types.is_date(kind):
        return {"type": "string", "format": "date"}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    if pa.types.is_null(kind):
        return {"type": "null"}
    handed, _ = _handed(kind, path)
    assert pa.types.is_string(handed) or pa.types.is_large_string(handed)
    return {"type": "string"}


def _item(kind: pa.DataType, path: str) -> dict[str, Any]:
    """Items cannot be left out, so they may be null."""
    made = _schema(kind, path)
    return made if made["type"] == "null" else made | {"type": [made["type"], "null"]}


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named(path: str) -> str:
    return f"column {path}" if path else "the value"
