"""Encoders by format, the choice of the schema with which rows are written, and conversions of values."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.serializers import NotSerializable
from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas.columns.decoder import columnar_format
from headrace.schemas.errors import SchemaError
from headrace.schemas.registry import Registry
from headrace.schemas.subjects import Registration
from headrace.schemas.wire import prefix

if TYPE_CHECKING:
    import pyarrow as pa


# A value in an error's text: more of it helps nobody.
VALUE_CHARACTERS_MAX = 200


class Encoding(NamedTuple):
    """The conversion of rows of one type to values of one schema."""

    handed: "pa.DataType"  # what the rows are cast to before they become Python's values; maps are pairs then
    encode: Callable[[Any], bytes]
    indexes: tuple[int, ...] | None = None  # of a Protobuf message


class Encoder:
    """
    >>> import pyarrow as pa
    >>> rows = pa.array([{"ad": "tea", "price": 1.5}, None])
    >>> encoder_for("json", rows.type).values(rows).to_pylist()
    [b'{"ad":"tea","price":1.5}', None]
    """

    def __init__(
        self, kind: "pa.DataType", encoding: Encoding, schema: Schema | None, id: int | None
    ) -> None:
        self.type = kind
        self.schema = schema
        self.id = id  # None: there is no registry, and values are bare
        self._encoding = encoding
        self._prefix = b"" if id is None else prefix(id, encoding.indexes)
        self._evened = _evened(kind)

    def values(self, rows: "pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
        """The bytes of each row; null stays null. NotSerializable if a row does not fit the schema."""
        import pyarrow as pa

        if isinstance(rows, pa.ChunkedArray):
            return pa.chunked_array([self.values(chunk) for chunk in rows.chunks], pa.binary())
        try:
            handed = rows.cast(self._evened).cast(self._encoding.handed)
        except pa.ArrowException as error:
            raise NotSerializable(f"the columns do not fit the schema: {error}") from error
        encode, start = self._encoding.encode, self._prefix
        written: list[bytes | None] = []
        value: Any = None
        try:
            for value in handed.to_pylist():
                written.append(None if value is None else start + encode(value))
        except Exception as error:
            raise NotSerializable(f"{_shown(value)} cannot be encoded: {error}") from error
        return pa.array(written, pa.binary())


def _evened(kind: "pa.DataType") -> "pa.DataType":
    """The type with all times in UTC, and nullable everywhere: the format decides about nulls."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _evened(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_evened(kind.key_type), _evened(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_evened(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


def encoder_for(
    format: str,
    kind: "pa.DataType",
    *,
    schema: str | Schema | None = None,
    registry: Registry | None = None,
    subject: str | None = None,
    message: str | None = None,
    auto_register: bool = True,
    name: str = "Value",
) -> Encoder:
    """An encoder of `json`, `avro` or `protobuf` for columns of one type, usually a struct.

    Without a `schema`, JSON and Avro derive one from the type, with `name` as the name of the record.
    Protobuf, and all formats if nothing is to be registered, use the newest schema of the `subject`. Raises
    DoesNotFit if the type does not fit the schema.
    """
    wanted = columnar_format(format)
    given = Schema(schema, wanted) if isinstance(schema, str) else schema
    if given is None and wanted is not SchemaType.PROTOBUF and (registry is None or auto_register):
        given = Schema(_derived(wanted, kind, name), wanted)
    id = None
    if registry is not None:
        registration = Registration(subject=subject, auto_register=auto_register, use_latest=given is None)
        found = registration.resolve(registry, given)
        id, given = found.id, found.schema
    if given is None:
        raise SchemaError("PROTOBUF needs a schema, or a registry with a subject that has one")
    if given.type is not wanted:
        raise SchemaError(f"the schema is of type {given.type}, not {wanted}")
    return Encoder(kind, _encoding(given, kind, registry, message), given, id)


def _derived(wanted: SchemaType, kind: "pa.DataType", name: str) -> str:
    if wanted is SchemaType.AVRO:
        from headrace.schemas.encoding import avro

        return avro.derived(kind, name)
    from headrace.schemas.encoding import json

    return json.derived(kind, name)


def _encoding(
    schema: Schema, kind: "pa.DataType", registry: Registry | None, message: str | None
) -> Encoding:
    imports = () if registry is None else registry.imports(schema)
    match schema.type:
        case SchemaType.AVRO:
            from headrace.schemas.encoding import avro

            return avro.encoding(schema.text, imports, kind)
        case SchemaType.JSON:
            from headrace.schemas.encoding import json

            return json.encoding(kind)
        case SchemaType.PROTOBUF:
            from headrace.schemas.encoding import protobuf

            return protobuf.encoding(schema.text, imports, kind, message)


# --- conversions -----------------------------------------------------------------------------------------
# From Arrow's Python values to those that an encoder takes: functions that are composed once. None means "no
# conversion": most columns need none, and no call costs nothing.

Shape = Callable[[Any], Any] | None


def unless_null(shape: Shape) -> Shape:
    return None if shape is None else lambda value: None if value is None else shape(value)


def each(shape: Shape) -> Shape:
    """Converts the items of a list."""
    shape = unless_null(shape)
    return None if shape is None else lambda values: [shape(value) for value in values]


def pairs(shape: Shape) -> Shape:
    """Converts pairs, which is how Arrow returns maps, to a dict; `shape` converts the values."""
    shape = unless_null(shape)
    return dict if shape is None else lambda values: {key: shape(value) for key, value in values}


def fields(shapes: dict[str, Shape]) -> Shape:
    """Converts the fields of a dict, in place: nobody else uses the dict."""
    needed = [(name, shape) for name, shape in shapes.items() if shape is not None]
    if not needed:
        return None

    def shaped(value: dict[str, Any]) -> dict[str, Any]:
        for name, shape in needed:
            if (found := value[name]) is not None:
                value[name] = shape(found)
        return value

    return shaped
