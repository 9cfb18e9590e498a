"""Decoding of Protobuf to columns.

Fields with presence (optional fields, members of a oneof, messages) are null if they are not set; all others
have their defaults. Enums are names, unsigned numbers have the next larger signed type (uint64 is a decimal),
as in Spark's own Protobuf functions. Timestamps, durations and wrappers become the values that they stand
for.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas.columns.decoder import Decoded
from headrace.schemas.columns.rows import decoded_rows
from headrace.schemas.errors import MissingLibrary, SchemaError, UnsupportedSchema
from headrace.schemas.protobuf import ProtobufFile, message_class
from headrace.schemas.registry import Registry
from headrace.schemas.wire import read_frame

try:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.json_format import MessageToJson
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise MissingLibrary("google.protobuf", "Protobuf") from error

Shape = Callable[[Any], Any]
Field = FieldDescriptor

_SCALARS = {
    Field.TYPE_DOUBLE: pa.float64(),
    Field.TYPE_FLOAT: pa.float32(),
    Field.TYPE_INT64: pa.int64(),
    Field.TYPE_SINT64: pa.int64(),
    Field.TYPE_SFIXED64: pa.int64(),
    Field.TYPE_INT32: pa.int32(),
    Field.TYPE_SINT32: pa.int32(),
    Field.TYPE_SFIXED32: pa.int32(),
    Field.TYPE_UINT32: pa.int64(),
    Field.TYPE_FIXED32: pa.int64(),
    Field.TYPE_BOOL: pa.bool_(),
    Field.TYPE_STRING: pa.string(),
    Field.TYPE_BYTES: pa.binary(),
}
_UNSIGNED = (Field.TYPE_UINT64, Field.TYPE_FIXED64)
UNSIGNED = pa.decimal128(20, 0)


class ProtobufDecoder:
    def __init__(self, schema: Schema, registry: Registry | None, message: str | None) -> None:
        self._registry = registry
        imports = () if registry is None else registry.imports(schema)
        self._descriptor = ProtobufFile(schema.text, imports).message(message)
        self._parse = message_class(self._descriptor).FromString
        self._type, self._shape = _message(self._descriptor, ())
        self._known: set[tuple[int, tuple[int, ...]]] = set()  # what was found to be our message

    @property
    def type(self) -> pa.StructType:
        return self._type

    def columns(self, values: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None = None) -> Decoded:
        return decoded_rows(values, id_headers, self._decode, self._type)

    def _decode(self, data: bytes, header: bytes | None) -> Any:
        if self._registry is not None:
            frame = read_frame(data if header is None else header, with_indexes=True)
            id = frame.id if frame.id is not None else self._registry.id_of_guid(frame.guid or "")
            if (id, frame.indexes) not in self._known:
                self._check(id, frame.indexes, self._registry)
                self._known.add((id, frame.indexes))
            if header is None:
                data = data[frame.payload_at :]
        try:
            return self._shape(self._parse(data))
        except DecodeError:
            raise ValueError(f"the bytes are not a {self._descriptor.full_name}") from None

    def _check(self, id: int, indexes: tuple[int, ...], registry: Registry) -> None:
        """Raises unless the value is of our message, in any version of the schema."""
        written = registry.schema(id)
        if written.type is not SchemaType.PROTOBUF:
            raise SchemaError(f"schema {id} is of type {written.type}, not PROTOBUF")
        found = ProtobufFile(written.text, registry.imports(written)).at(indexes, self._descriptor.full_name)
        if found.full_name != self._descriptor.full_name:
            raise SchemaError(f"the value is a {found.full_name}, not a {self._descriptor.full_name}")


def _message(descriptor: Descriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Shape]:
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known
    if descriptor.full_name in within:
        raise UnsupportedSchema(
            f"{descriptor.full_name} is recursive; recursive schemas cannot be converted to columns"
        )
    within = (*within, descriptor.full_name)
    fields = []
    shapes: list[tuple[str, Shape]] = []
    for field in descriptor.fields:
        kind, shape = _field(field, within)
        fields.append((field.name, kind))
        shapes.append((field.name, shape))

    def shaped(message: Any) -> dict[str, Any]:
        return {name: shape(message) for name, shape in shapes}

    return pa.struct(fields), shaped


def _field(field: FieldDescriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Shape]:
    """The column of a field, and the function that reads its value from a message."""
    name = field.name
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key_kind, key = _value(entry.fields_by_name["key"], within)
        value_kind, value = _value(entry.fields_by_name["value"], within)
        return pa.map_(key_kind, value_kind), lambda message: [
            (key(one), value(each)) for one, each in getattr(message, name).items()
        ]
    kind, shape = _value(field, within)
    if field.is_repeated:
        return pa.list_(kind), lambda message: [shape(each) for each in getattr(message, name)]
    if field.has_presence:
        return kind, lambda message: shape(getattr(message, name)) if message.HasField(name) else None
    return kind, lambda message: shape(getattr(message, name))


def _value(field: FieldDescriptor, within: tuple[str, ...]) -> tuple[pa.DataType, Shape]:
    if field.message_type is not None:
        return _message(field.message_type, within)
    if field.enum_type is not None:
        return pa.string(), _enum(field.enum_type)
    if field.type in _UNSIGNED:
        return UNSIGNED, Decimal
    return _SCALARS[field.type], _same


def _enum(descriptor: EnumDescriptor) -> Shape:
    names = {value.number: value.name for value in reversed(descriptor.values)}
    # a number without a name comes from a newer writer
    return lambda number: names.get(number) or str(number)


def _same(value: Any) -> Any:
    return value


def _wrapped(kind: pa.DataType, shape: Shape = _same) -> tuple[pa.DataType, Shape]:
    return kind, lambda message: shape(message.value)


_AS_JSON = (pa.string(), lambda message: MessageToJson(message, indent=None))
_WELL_KNOWN: dict[str, tuple[pa.DataType, Shape]] = {
    "google.protobuf.Timestamp": (
        pa.timestamp("us", "UTC"),
        lambda message: message.seconds * 1_000_000 + message.nanos // 1_000,
    ),
    "google.protobuf.Duration": (
        pa.duration("us"),
        lambda message: message.seconds * 1_000_000 + message.nanos // 1_000,
    ),
    "google.protobuf.Struct": _AS_JSON,
    "google.protobuf.Value": _AS_JSON,
    "google.protobuf.ListValue": _AS_JSON,
    "google.protobuf.DoubleValue": _wrapped(pa.float64()),
    "google.protobuf.FloatValue": _wrapped(pa.float32()),
    "google.protobuf.Int64Value": _wrapped(pa.int64()),
    "google.protobuf.UInt64Value": _wrapped(UNSIGNED, Decimal),
    "google.protobuf.Int32Value": _wrapped(pa.int32()),
    "google.protobuf.UInt32Value": _wrapped(pa.int64()),
    "google.protobuf.BoolValue": _wrapped(pa.bool_()),
    "google.protobuf.StringValue": _wrapped(pa.string()),
    "google.protobuf.BytesValue": _wrapped(pa.binary()),
}
