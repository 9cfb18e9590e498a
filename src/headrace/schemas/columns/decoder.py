"""Which decoder reads which format, and what all of them answer."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.machines.schemas.schema import Schema, SchemaType
from headrace.schemas.columnar import columnar_format
from headrace.schemas.errors import SchemaError
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
        """What every batch is decoded to."""
        ...

    def columns(self, values: "pa.Array | pa.ChunkedArray", id_headers: "pa.Array | None" = None) -> Decoded:
        """`id_headers`: for each row what its header `__value_schema_id` has, null for none."""
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

    With a registry values begin with a schema's id, and are shown by `schema`, else by the newest version of
    `subject`, whichever version wrote them. Without one they are bare, and `schema` says what they are.
    JSON may also have Arrow's types as its schema, or a `sample` to learn them from. `message` names one of
    a Protobuf schema's messages.
    """
    kind = columnar_format(format)
    if registry is not None and subject is not None and schema is None:
        schema = registry.latest(subject).schema
    if isinstance(schema, Schema) and schema.type is not kind:
        raise SchemaError(f"the schema is {schema.type}, and not {kind}")
    if isinstance(schema, str):
        schema = Schema(schema, kind)
    return _made(kind, schema, registry, message, sample)


def _made(
    kind: SchemaType, schema: Any, registry: Registry | None, message: str | None, sample: Any
) -> Decoder:
    if kind is SchemaType.JSON:
        from headrace.schemas.columns.json import JsonDecoder, inferred_type
        from headrace.schemas.columns.json_types import type_of_schema

        if sample is not None and schema is None:
            return JsonDecoder(inferred_type(sample, registry), registry)
        if schema is None:
            raise SchemaError("JSON needs a schema, or a sample of values to learn one from")
        return JsonDecoder(type_of_schema(schema, registry), registry)
    if not isinstance(schema, Schema):
        raise SchemaError(f"{kind} needs a schema, or a registry and a subject that has one")
    if kind is SchemaType.AVRO:
        from headrace.schemas.columns.avro import AvroDecoder

        return AvroDecoder(schema, registry)
    from headrace.schemas.columns.protobuf import ProtobufDecoder

    return ProtobufDecoder(schema, registry, message)
