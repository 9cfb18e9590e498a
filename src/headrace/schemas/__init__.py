"""Schemas: a client of schema registries, serializers, and whole batches decoded to columns.

Avro needs fastavro and Protobuf needs protobuf, both in the `schemas` extra; columns need pyarrow.
"""

from headrace.schema_formats.schema import InvalidSchema, Reference, Schema, SchemaType
from headrace.schemas.columns import Decoded, Decoder, decoder_for
from headrace.schemas.dead_letters import DeadLetter
from headrace.schemas.encoding import Encoder, encoder_for
from headrace.schemas.errors import (
    DoesNotFit,
    Incompatible,
    MissingLibrary,
    NoRegistry,
    NotFramed,
    RegistryRefused,
    RegistryTrouble,
    RegistryUnreachable,
    SchemaError,
    SchemaUnknown,
    UnsupportedSchema,
)
from headrace.schemas.registry import Registered, Registry
from headrace.schemas.serializers import (
    SchemaSerializer,
    any_deserializer,
    avro_serializer,
    json_serializer,
    protobuf_serializer,
)
from headrace.schemas.subjects import by_record, by_topic, by_topic_and_record

__all__ = [
    "DeadLetter",
    "Decoded",
    "Decoder",
    "DoesNotFit",
    "Encoder",
    "Incompatible",
    "InvalidSchema",
    "MissingLibrary",
    "NoRegistry",
    "NotFramed",
    "Reference",
    "Registered",
    "Registry",
    "RegistryRefused",
    "RegistryTrouble",
    "RegistryUnreachable",
    "Schema",
    "SchemaError",
    "SchemaSerializer",
    "SchemaType",
    "SchemaUnknown",
    "UnsupportedSchema",
    "any_deserializer",
    "avro_serializer",
    "by_record",
    "by_topic",
    "by_topic_and_record",
    "decoder_for",
    "encoder_for",
    "json_serializer",
    "protobuf_serializer",
]
