"""Which schema rows are written with, and how their bytes are made."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.serializers import NotSerializable
from headrace.machines.schemas.schema import Schema, SchemaType
from headrace.schemas.columnar import columnar_format
from headrace.schemas.errors import SchemaError
from headrace.schemas.place import Place
from headrace.schemas.registry import Registry
from headrace.schemas.wire import prefix

if TYPE_CHECKING:
    import pyarrow as pa

# A value in an error's text: more of it helps nobody.
VALUE_CHARACTERS_MAX = 200


class Encoding(NamedTuple):
    """How rows of one type become values of one schema."""

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
            raise NotSerializable(f"{_shown(value)} cannot be written: {error}") from error
        return pa.array(written, pa.binary())


def _evened(kind: "pa.DataType") -> "pa.DataType":
    """The type with all instants in UTC, and with nulls wherever: whether they may be is for the format."""
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

    Without a `schema` one is made of the type, in which records have the `name`; Protobuf takes the newest of
    the `subject`, and so do all if nothing is to be registered. DoesNotFit if the type cannot be written so.
    """
    wanted = columnar_format(format)
    given = Schema(schema, wanted) if isinstance(schema, str) else schema
    if given is None and wanted is not SchemaType.PROTOBUF and (registry is None or auto_register):
        given = Schema(_derived(wanted, kind, name), wanted)
    id = None
    if registry is not None:
        place = Place(subject=subject, auto_register=auto_register, use_latest=given is None)
        found = place.registered(registry, given)
        id, given = found.id, found.schema
    if given is None:
        raise SchemaError("PROTOBUF needs a schema, or a registry and a subject that has one")
    if given.type is not wanted:
        raise SchemaError(f"the schema is {given.type}, and not {wanted}")
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
