"""Decoders by format, the result of decoding, and the names of formats that have columns."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas.errors import MissingLibrary, SchemaError
from headrace.schemas.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa


class Failure(NamedTuple):
    row: int
    reason: str


class Decoded(NamedTuple):
    struct: "pa.StructArray"  # as many rows as there were values
    failures: list[Failure]  # in the order of their rows


class Decoder(Protocol):
    @property
    def type(self) -> "pa.StructType":
        """The type to which every batch is decoded."""
        ...

    def columns(self, values: "pa.Array | pa.ChunkedArray", id_headers: "pa.Array | None" = None) -> Decoded:
        """Decodes values. `id_headers` has for each row the value of its header `__value_schema_id`, or
        null.
        """
        ...


def decoder_for(
    format: str,
    *,
    schema: "str | Schema | pa.Schema | pa.DataType | None" = None,
    registry: Registry | None = None,
    subject: str | None = None,
    message: str | None = None,
    sample: "pa.Array | pa.ChunkedArray | None" = None,
) -> Decoder:
    """A decoder of `json`, `avro` or `protobuf`.

    With a registry, values begin with a schema id, and every version is converted to `schema`, or by default
    to the newest version of `subject`. Without a registry, values have no id, and `schema` describes them.
    For JSON, `schema` may also be Arrow types, or a `sample` of values gives them. `message` names one of the
    messages of a Protobuf schema.
    """
    kind = columnar_format(format)
    if registry is not None and subject is not None and schema is None:
        schema = registry.latest(subject).schema
    if isinstance(schema, Schema) and schema.type is not kind:
        raise SchemaError(f"the schema is of type {schema.type}, not {kind}")
    if isinstance(schema, str):
        schema = Schema(schema, kind)
    return _made(kind, schema, registry, message, sample)


def _made(
    kind: SchemaType, schema: Any, registry: Registry | None, message: str | None, sample: Any
) -> Decoder:
    if kind is SchemaType.JSON:
        from headrace.schemas.columns.json import JsonDecoder, inferred_type, type_of_schema

        if sample is not None and schema is None:
            return JsonDecoder(inferred_type(sample, registry), registry)
        if schema is None:
            raise SchemaError("JSON needs a schema, or a sample of values from which to infer one")
        return JsonDecoder(type_of_schema(schema, registry), registry)
    if not isinstance(schema, Schema):
        raise SchemaError(f"{kind} needs a schema, or a registry with a subject that has one")
    if kind is SchemaType.AVRO:
        from headrace.schemas.columns.avro import AvroDecoder

        return AvroDecoder(schema, registry)
    from headrace.schemas.columns.protobuf import ProtobufDecoder

    return ProtobufDecoder(schema, registry, message)


def columnar_format(name: str) -> SchemaType:
    """The format with this name; raises MissingLibrary if pyarrow is not installed."""
    try:
        kind = SchemaType(name.upper())
    except ValueError:
        raise SchemaError(f"format {name!r}: must be json, avro or protobuf") from None
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingLibrary("pyarrow", "reading and writing columns") from error
    return kind
