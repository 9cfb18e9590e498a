"""Encoding of columns as Protobuf messages.

A column is the field with the same name. Fields without a column, and null values, are not set. Enums are
names (or numbers); timestamps, durations and wrappers are the values that they stand for, as in decoding. Two
members of a oneof in one row are an error, because one of them would be lost.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.schema_formats.schema import Imports
from headrace.schemas.encoding.encoder import Encoding, Shape, each, pairs
from headrace.schemas.errors import DoesNotFit, MissingLibrary
from headrace.schemas.protobuf import ProtobufFile, message_class

try:
    from google.protobuf import json_format
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
except ImportError as error:
    raise MissingLibrary("google.protobuf", "Protobuf") from error

Field = FieldDescriptor

_WHOLE = {
    Field.TYPE_INT64: pa.int64(),
    Field.TYPE_SINT64: pa.int64(),
    Field.TYPE_SFIXED64: pa.int64(),
    Field.TYPE_UINT64: pa.uint64(),
    Field.TYPE_FIXED64: pa.uint64(),
    Field.TYPE_INT32: pa.int32(),
    Field.TYPE_SINT32: pa.int32(),
    Field.TYPE_SFIXED32: pa.int32(),
    Field.TYPE_UINT32: pa.uint32(),
    Field.TYPE_FIXED32: pa.uint32(),
}
_FLOATING = {Field.TYPE_DOUBLE: pa.float64(), Field.TYPE_FLOAT: pa.float32()}


def encoding(text: str, imports: Imports, kind: pa.DataType, name: str | None) -> Encoding:
    file = ProtobufFile(text, imports)
    descriptor = file.message(name)
    handed, shape = _message(kind, descriptor, "")
    made = message_class(descriptor)
    assert shape is not None

    def encode(value: Any) -> bytes:
        written: bytes = made(**shape(value)).SerializeToString()
        return written

    return Encoding(handed, encode, file.indexes_of(descriptor))


def _message(kind: pa.DataType, descriptor: Descriptor, path: str) -> tuple[pa.DataType, Shape]:
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known(kind, descriptor, path)
    if not pa.types.is_struct(kind):
        raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has the message {descriptor.name}")
    handed, shapes = [], {}
    for field in kind:
        inside = f"{path}.{field.name}" if path else field.name
        wanted = descriptor.fields_by_name.get(field.name)
        if wanted is None:
            raise DoesNotFit(f"{descriptor.full_name} has no field for column {inside}")
        inner, shapes[field.name] = _field(field.type, wanted, inside)
        handed.append(pa.field(field.name, inner))
    return pa.struct(handed), _set_fields(descriptor, shapes)


def _set_fields(descriptor: Descriptor, shapes: dict[str, Shape]) -> Shape:
    oneofs = [
        members
        for oneof in descriptor.oneofs
        if len(members := [field.name for field in oneof.fields if field.name in shapes]) > 1
    ]

    def shaped(value: dict[str, Any]) -> dict[str, Any]:
        made = {
            name: found if (shape := shapes[name]) is None else shape(found)
            for name, found in value.items()
            if found is not None
        }
        for members in oneofs:
            there = [name for name in members if name in made]
            if len(there) > 1:
                raise ValueError(
                    f"{' and '.join(there)} cannot be set together: they are members of one oneof"
                )
        return made

    return shaped


def _field(kind: pa.DataType, field: FieldDescriptor, path: str) -> tuple[pa.DataType, Shape]:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not pa.types.is_map(kind):
            raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has a map")
        key, key_shape = _value(kind.key_type, entry.fields_by_name["key"], path)
        assert key_shape is None, "keys of maps are whole numbers, texts and booleans"
        value, shape = _value(kind.item_type, entry.fields_by_name["value"], path)
        return pa.map_(key, value), pairs(shape)
    if field.is_repeated:
        if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
            raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has an array")
        inner, shape = _value(kind.value_type, field, path)
        return pa.list_(inner), each(shape)
    return _value(kind, field, path)


def _value(kind: pa.DataType, field: FieldDescriptor, path: str) -> tuple[pa.DataType, Shape]:
    if field.message_type is not None:
        return _message(kind, field.message_type, path)
    if field.enum_type is not None:
        if pa.types.is_integer(kind):
            return pa.int32(), None
        if pa.types.is_string(kind):
            return kind, _enum(field.enum_type)
    is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if field.type in _WHOLE and is_whole:
        return _WHOLE[field.type], None
    if field.type in _FLOATING and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return _FLOATING[field.type], None
    if field.type == Field.TYPE_BOOL and pa.types.is_boolean(kind):
        return kind, None
    if field.type == Field.TYPE_STRING and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return pa.string(), None
    if field.type == Field.TYPE_BYTES and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return pa.binary(), None
    raise DoesNotFit(f"{_named(path)} is of type {kind}, which does not fit the field {field.full_name}")


def _enum(descriptor: EnumDescriptor) -> Shape:
    numbers = {value.name: value.number for value in descriptor.values}

    def number(text: str) -> int:
        found = numbers.get(text)
        # what a newer writer knew and we do not was read as its number
        return int(text) if found is None else found

    return number


def _named(path: str) -> str:
    return f"column {path}" if path else "the value"


# --- messages that mean something else --------------------------------------------------------------------

WellKnown = Callable[[pa.DataType, Descriptor, str], tuple[pa.DataType, Shape]]


def _timestamp(kind: pa.DataType, descriptor: Descriptor, path: str) -> tuple[pa.DataType, Shape]:
    if not pa.types.is_timestamp(kind) or kind.unit != "us":
        raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has a {descriptor.full_name}")
    return pa.int64(), lambda micros: {"seconds": micros // 1_000_000, "nanos": micros % 1_000_000 * 1_000}


def _duration(kind: pa.DataType, descriptor: Descriptor, path: str) -> tuple[pa.DataType, Shape]:
    if not pa.types.is_duration(kind) or kind.unit != "us":
        raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has a {descriptor.full_name}")

    def shaped(micros: int) -> dict[str, int]:
        # both parts have one sign
        sign = -1 if micros < 0 else 1
        seconds, rest = divmod(abs(micros), 1_000_000)
        return {"seconds": sign * seconds, "nanos": sign * rest * 1_000}

    return pa.int64(), shaped


def _wrapper(kind: pa.DataType, descriptor: Descriptor, path: str) -> tuple[pa.DataType, Shape]:
    handed, shape = _value(kind, descriptor.fields_by_name["value"], path)
    return handed, lambda value: {"value": value if shape is None else shape(value)}


def _json(kind: pa.DataType, descriptor: Descriptor, path: str) -> tuple[pa.DataType, Shape]:
    if not pa.types.is_string(kind):
        raise DoesNotFit(f"{_named(path)} is of type {kind}; the schema has JSON as text")
    made = message_class(descriptor)
    return kind, lambda text: json_format.Parse(text, made())


_WELL_KNOWN: dict[str, WellKnown] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Duration": _duration,
    "google.protobuf.Struct": _json,
    "google.protobuf.Value": _json,
    "google.protobuf.ListValue": _json,
} | {
    f"google.protobuf.{name}Value": _wrapper
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
