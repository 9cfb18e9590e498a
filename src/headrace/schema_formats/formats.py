"""Parsing a schema of any format; compatibility levels: which versions may follow each other."""

from collections.abc import Sequence
from enum import StrEnum

from headrace.schema_formats import avro, avro_compatibility, json_compatibility, json_schema
from headrace.schema_formats.protobuf import compatibility as protobuf_compatibility
from headrace.schema_formats.protobuf import schema as protobuf
from headrace.schema_formats.schema import Imports, Parsed, SchemaType


class Level(StrEnum):
    """What a new version must be able to do: read what older ones wrote, be read by them, or both; and
    whether by the newest of them or by all.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.name.endswith("_TRANSITIVE")

    @property
    def reads_older(self) -> bool:
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        return self.name.startswith(("FORWARD", "FULL"))


def parse(kind: SchemaType, text: str, imports: Imports = ()) -> Parsed:
    """InvalidSchema when the text is not one."""
    match kind:
        case SchemaType.AVRO:
            return avro.parse(text, imports)
        case SchemaType.JSON:
            return json_schema.parse(text, imports)
        case SchemaType.PROTOBUF:
            return protobuf.parse(text, imports)


def obstacles(reader: Parsed, writer: Parsed) -> list[str]:
    """What keeps a reader with one schema from reading what was written with the other."""
    match reader, writer:
        case avro.AvroSchema(), avro.AvroSchema():
            return avro_compatibility.obstacles(reader, writer)
        case json_schema.JsonSchema(), json_schema.JsonSchema():
            return json_compatibility.obstacles(reader, writer)
        case protobuf.ProtobufSchema(), protobuf.ProtobufSchema():
            return protobuf_compatibility.obstacles(reader, writer)
    return ["SCHEMA_TYPE_CHANGED: schemas of different kinds cannot read each other"]


def violations(level: Level, fresh: Parsed, older: Sequence[Parsed]) -> list[str]:
    """Why `fresh` may not follow the versions before it (the newest last); empty: it may."""
    if level is Level.NONE:
        return []
    found = []
    for version in older if level.is_transitive else older[-1:]:
        if level.reads_older:
            found += obstacles(fresh, version)
        if level.is_read_by_older:
            found += obstacles(version, fresh)
    return found
