"""The columns of JSON: of its schema, or of values that were seen."""

from typing import Any

import pyarrow as pa

from headrace.machines.schemas import json_schema
from headrace.machines.schemas.json_schema import Part
from headrace.machines.schemas.schema import Schema
from headrace.schemas.errors import UnsupportedSchema
from headrace.schemas.registry import Registry


def shown_field(field: pa.Field) -> pa.Field:
    """A column of nulls only is text: a type must be chosen, and text can hold what comes later."""
    return field.with_type(_known_type(field.type))


def _known_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([shown_field(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_known_type(kind.value_type))
    return kind


def type_of_schema(schema: Any, registry: Registry | None = None) -> pa.StructType:
    """Of a JSON schema, or of Arrow's own types."""
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    if isinstance(schema, pa.DataType):
        if not pa.types.is_struct(schema):
            raise UnsupportedSchema("the columns of JSON are a struct")
        return schema
    assert isinstance(schema, Schema)
    imports = () if registry is None else registry.imports(schema)
    found = _type(json_schema.parse(schema.text, imports).root, ())
    if not pa.types.is_struct(found):
        raise UnsupportedSchema("a JSON schema whose values are not objects has no columns")
    return found


_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}


def _type(part: Part, within: tuple[int, ...]) -> pa.DataType:
    part = part.followed()
    if id(part.value) in within:
        raise UnsupportedSchema("the schema contains itself: no column can hold it")
    if isinstance(part.value, dict):
        within = (*within, id(part.value))
    sort = part.sort
    if sort == "combined" and part.combination is not None:
        _, parts = part.combination
        real = [each.followed() for each in parts if each.followed().get("type") != "null"]
        # null or something is that something; anything else is kept as text
        return _type(real[0], within) if len(real) == 1 else pa.string()
    match sort:
        case "object":
            return _object(part, within)
        case "array":
            items = part.get("items")
            return pa.list_(_type(part.inner(items), within) if isinstance(items, dict) else pa.string())
        case "number":
            return pa.int64() if part.get("type") == "integer" else pa.float64()
        case "boolean":
            return pa.bool_()
        case "string":
            if part.get("contentEncoding") == "base64":
                return pa.binary()
            return _FORMATS.get(part.get("format", ""), pa.string())
    return pa.string()


def _object(part: Part, within: tuple[int, ...]) -> pa.DataType:
    properties = part.get("properties")
    if properties:
        return pa.struct([(name, _type(part.inner(each), within)) for name, each in properties.items()])
    values = part.get("additionalProperties")
    if isinstance(values, dict) and values:
        return pa.map_(pa.string(), _type(part.inner(values), within))
    return pa.string()
