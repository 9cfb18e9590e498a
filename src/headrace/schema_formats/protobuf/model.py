"""Model of a .proto file: messages, enums, fields and their types.

Services, extensions and `reserved` are kept as text, because they do not change the encoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

# Field types by their number in google.protobuf.FieldDescriptorProto.Type.
SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}


class Option(NamedTuple):
    name: str
    value: str  # as written: a literal, a quoted text, or an aggregate in braces


@dataclass(slots=True)
class Field:
    name: str
    number: int
    type: str  # a scalar, or the name of a type as it was written
    label: str = ""  # "", "optional", "required" or "repeated"
    key_type: str = ""  # of a map, whose values are of `type`
    oneof: str = ""  # the oneof it belongs to
    options: list[Option] = field(default_factory=list)
    behind: int = 0  # of a map: so many messages are declared before it, in the message that has it

    @property
    def is_map(self) -> bool:
        return bool(self.key_type)


@dataclass(slots=True)
class Enum:
    name: str
    values: list[tuple[str, int]] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    oneofs: list[str] = field(default_factory=list)
    messages: "list[Message]" = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def nested(self) -> "Iterator[Message | Field]":
        """The messages inside, and the maps, whose entries are messages to protoc: in the order in which it
        counts them.
        """
        maps = [field for field in self.fields if field.is_map]
        for number, message in enumerate(self.messages):
            while maps and maps[0].behind <= number:
                yield maps.pop(0)
            yield message
        yield from maps


class Import(NamedTuple):
    path: str
    modifier: str = ""  # "", "public" or "weak"


@dataclass(slots=True)
class File:
    syntax: str = "proto2"
    package: str = ""
    imports: list[Import] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def types(self) -> Iterator[tuple[str, Message | Enum]]:
        """Every type of the file by its full name, outer ones first."""
        prefix = f"{self.package}." if self.package else ""
        for enum in self.enums:
            yield prefix + enum.name, enum
        for message in self.messages:
            yield from _types(prefix, message)


def _types(prefix: str, message: Message) -> Iterator[tuple[str, Message | Enum]]:
    name = prefix + message.name
    yield name, message
    for enum in message.enums:
        yield f"{name}.{enum.name}", enum
    for inner in message.messages:
        yield from _types(f"{name}.", inner)


def resolve(name: str, scope: str, known: dict[str, Message | Enum]) -> str | None:
    """The full name of the type that `name` means inside `scope`, by protobuf's (and C++'s) rule: from the
    innermost scope outwards.
    """
    if name.startswith("."):
        return name[1:] if name[1:] in known else None
    while True:
        candidate = f"{scope}.{name}" if scope else name
        if candidate in known:
            return candidate
        if not scope:
            return None
        scope = scope.rpartition(".")[0]
