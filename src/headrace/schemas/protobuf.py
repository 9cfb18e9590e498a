"""Protobuf message classes from the text of a schema, without protoc and generated code."""

from typing import Any

from headrace.schema_formats.protobuf.model import Field, Message
from headrace.schema_formats.protobuf.schema import ProtobufSchema, parse
from headrace.schema_formats.protobuf.well_known import types_of
from headrace.schema_formats.schema import Imports, InvalidSchema
from headrace.schemas.errors import MissingLibrary
from headrace.schemas.wire import FIRST

try:
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        json_format,
        message_factory,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message as GeneratedMessage
except ImportError as error:
    raise MissingLibrary("google.protobuf", "Protobuf") from error

_WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}


class ProtobufFile:
    """The message classes of a schema."""

    def __init__(self, text: str, imports: Imports = ()) -> None:
        self.schema: ProtobufSchema = parse(text, imports)
        pool = descriptor_pool.DescriptorPool()
        for path, data in self.schema.descriptors():
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            for needed in file.dependency:
                if types_of(needed) is not None:
                    _add_well_known(pool, needed)
            try:
                pool.Add(file)
                pool.FindFileByName(path)
            except (TypeError, KeyError) as error:
                raise InvalidSchema(f"protobuf rejects {path}: {error}") from error
        self._pool = pool
        self.file = pool.FindFileByName(self.schema.path)

    def message(self, name: str | None = None) -> Descriptor:
        """The message with this name, with or without the package; without a name, the first of the file."""
        if name is None:
            return self.at(FIRST)
        for candidate in (name, f"{self.file.package}.{name}"):
            try:
                return self._pool.FindMessageTypeByName(candidate)
            except KeyError:
                continue
        raise InvalidSchema(f"the schema has no message {name!r}")

    def at(self, indexes: tuple[int, ...], wanted: str | None = None) -> Descriptor:
        """The message at the indexes of a frame; `wanted` is the full name of the expected message.

        protoc turns the entries of a map into nested messages, so writers that use descriptors count them,
        and writers that use the text may not. Both counts are tried; the one that leads to the expected
        message is right.
        """
        found = [name for is_counting in (True, False) if (name := self._name_at(indexes, is_counting))]
        if not found:
            raise InvalidSchema(f"the schema has no message at {list(indexes)}")
        return self._pool.FindMessageTypeByName(wanted if wanted in found else found[0])

    def _name_at(self, indexes: tuple[int, ...], is_counting: bool) -> str | None:
        level: list[Message | Field] = list(self.schema.file.messages)
        names = [self.file.package] if self.file.package else []
        for number in indexes:
            found = level[number] if 0 <= number < len(level) else None
            if not isinstance(found, Message):
                return None
            names.append(found.name)
            level = list(found.nested() if is_counting else found.messages)
        return ".".join(names)

    def indexes_of(self, descriptor: Descriptor) -> tuple[int, ...]:
        """The indexes of a message, from the outermost to the message itself, as protoc counts them."""
        level: list[Message | Field] = list(self.schema.file.messages)
        names = descriptor.full_name.removeprefix(f"{self.file.package}." if self.file.package else "")
        way = []
        for name in names.split("."):
            number, found = next(
                (number, each)
                for number, each in enumerate(level)
                if isinstance(each, Message) and each.name == name
            )
            way.append(number)
            level = list(found.nested())
        return tuple(way)


def _add_well_known(pool: descriptor_pool.DescriptorPool, path: str) -> None:
    try:
        pool.FindFileByName(path)
    except KeyError:
        known = _WELL_KNOWN[path]
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(known.serialized_pb))


def message_class(descriptor: Descriptor) -> Any:
    return message_factory.GetMessageClass(descriptor)


def is_message(value: Any) -> bool:
    return isinstance(value, GeneratedMessage)


def to_dict(message: GeneratedMessage) -> dict[str, Any]:
    """Fields by their names in the schema."""
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def from_dict(value: Any, message: GeneratedMessage) -> GeneratedMessage:
    """The message, filled."""
    return json_format.ParseDict(value, message)
