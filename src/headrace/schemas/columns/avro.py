"""Decoding of Avro to columns: records of fastavro, converted for Arrow.

Unions with null are nullable columns; other unions are structs with a column per branch (`member0`, …), as in
Spark's own Avro source. A schema that is not a record has one column, `value`.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas import avro
from headrace.schemas.columns.decoder import Decoded
from headrace.schemas.columns.rows import decoded_rows
from headrace.schemas.errors import SchemaError, UnsupportedSchema
from headrace.schemas.registry import Registry
from headrace.schemas.wire import read_frame

Shape = Callable[[Any], Any] | None  # None: the value is right as it is

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_PYTHON = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "array": list,
}


class AvroDecoder:
    def __init__(self, schema: Schema, registry: Registry | None) -> None:
        self._registry = registry
        imports = () if registry is None else registry.imports(schema)
        self._wanted = avro.compiled(schema.text, imports)
        self._readers: dict[int, Callable[[bytes], Any]] = {}
        self._bare = avro.reader(self._wanted)
        kind, self._shape = _Types().of(self._wanted)
        self._is_record = pa.types.is_struct(kind) and isinstance(self._wanted, dict)
        self._type = kind if self._is_record else pa.struct([("value", kind)])

    @property
    def type(self) -> pa.StructType:
        return self._type

    def columns(self, values: pa.Array | pa.ChunkedArray, id_headers: pa.Array | None = None) -> Decoded:
        return decoded_rows(values, id_headers, self._decode, self._type)

    def _decode(self, data: bytes, header: bytes | None) -> Any:
        if self._registry is None:
            value = self._bare(data)
        elif header is not None:
            value = self._reader(header, self._registry)(data)
        else:
            value = self._reader(data, self._registry)(
                data[read_frame(data, with_indexes=False).payload_at :]
            )
        if self._shape is not None:
            value = self._shape(value)
        return value if self._is_record else {"value": value}

    def _reader(self, framed: bytes, registry: Registry) -> Callable[[bytes], Any]:
        frame = read_frame(framed, with_indexes=False)
        id = frame.id if frame.id is not None else registry.id_of_guid(frame.guid or "")
        found = self._readers.get(id)
        if found is None:
            written = registry.schema(id)
            if written.type is not SchemaType.AVRO:
                raise SchemaError(f"schema {id} is of type {written.type}, not AVRO")
            compiled = avro.compiled(written.text, registry.imports(written))
            found = self._readers[id] = avro.reader(compiled, self._wanted)
        return found


class _Types:
    """From a schema to Arrow's type, and to the function that converts fastavro's values to it."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._under_way: set[str] = set()

    def of(self, schema: Any) -> tuple[pa.DataType, Shape]:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], None
            return self._reference(schema)
        kind = schema["type"]
        logical = schema.get("logicalType")
        if kind in ("int", "long", "bytes", "fixed", "string") and logical is not None:
            found = self._logical(schema, logical)
            if found is not None:
                return found
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "enum":
                self._named[schema["name"]] = schema
                return pa.string(), None
            case "fixed":
                self._named[schema["name"]] = schema
                return pa.binary(), None
            case "array":
                inner, shape = self.of(schema["items"])
                return pa.list_(inner), None if shape is None else _each(shape)
            case "map":
                inner, shape = self.of(schema["values"])
                return pa.map_(pa.string(), inner), _pairs(shape)
        return self.of(kind)

    def _reference(self, name: str) -> tuple[pa.DataType, Shape]:
        if name in self._under_way:
            raise UnsupportedSchema(f"{name} is recursive; recursive schemas cannot be converted to columns")
        if name not in self._named:
            raise UnsupportedSchema(f"{name} is not defined")
        return self.of(self._named[name])

    @staticmethod
    def _logical(schema: dict[str, Any], logical: str) -> tuple[pa.DataType, Shape] | None:
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0)), None
        if logical == "uuid":
            return pa.string(), str
        return (_LOGICAL[logical], None) if logical in _LOGICAL else None

    def _record(self, schema: dict[str, Any]) -> tuple[pa.DataType, Shape]:
        name = schema["name"]
        self._named[name] = schema
        self._under_way.add(name)
        fields, shapes = [], {}
        for field in schema["fields"]:
            kind, shape = self.of(field["type"])
            fields.append((field["name"], kind))
            if shape is not None:
                shapes[field["name"]] = shape
        self._under_way.discard(name)
        return pa.struct(fields), _fields(shapes) if shapes else None

    def _union(self, branches: list[Any]) -> tuple[pa.DataType, Shape]:
        real = [branch for branch in branches if branch != "null"]
        if not real:
            return pa.null(), None
        if len(real) == 1:
            kind, shape = self.of(real[0])
            return kind, None if shape is None else _unless_null(shape)
        names = {_kind(branch) for branch in real}
        if names == {"int", "long"}:
            return pa.int64(), None
        if names == {"float", "double"}:
            return pa.float64(), None
        members = [self.of(branch) for branch in real]
        tests = [_test(branch, self._named) for branch in real]
        kind = pa.struct([(f"member{number}", member) for number, (member, _) in enumerate(members)])
        return kind, _member(tests, [shape for _, shape in members])


def _kind(branch: Any) -> str:
    return str(branch["type"] if isinstance(branch, dict) else branch)


def _test(branch: Any, named: dict[str, Any]) -> Callable[[Any], bool]:
    """Whether a value is of this branch of a union."""
    if isinstance(branch, str) and branch in named:
        branch = named[branch]
    kind = _kind(branch)
    if kind in ("record", "error"):
        names = {field["name"] for field in branch["fields"]}
        return lambda value: isinstance(value, dict) and value.keys() == names
    if kind == "map":
        return lambda value: isinstance(value, dict)
    if isinstance(branch, dict) and branch.get("logicalType"):
        return lambda value: type(value) not in (bool, int, float, str, bytes, list, dict)
    expected = _PYTHON[kind]
    return lambda value: type(value) is expected


def _each(shape: Callable[[Any], Any]) -> Shape:
    return lambda values: [shape(value) for value in values]


def _pairs(shape: Shape) -> Shape:
    if shape is None:
        return lambda value: list(value.items())
    return lambda value: [(key, shape(each)) for key, each in value.items()]


def _fields(shapes: dict[str, Callable[[Any], Any]]) -> Shape:
    def shaped(value: dict[str, Any]) -> dict[str, Any]:
        for name, shape in shapes.items():
            value[name] = shape(value[name])
        return value

    return shaped


def _unless_null(shape: Callable[[Any], Any]) -> Shape:
    return lambda value: None if value is None else shape(value)


def _member(tests: list[Callable[[Any], bool]], shapes: list[Shape]) -> Shape:
    def shaped(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        for number, (test, shape) in enumerate(zip(tests, shapes, strict=True)):
            if test(value):
                return {f"member{number}": value if shape is None else shape(value)}
        raise ValueError(f"{value!r} matches no branch of its union")

    return shaped
