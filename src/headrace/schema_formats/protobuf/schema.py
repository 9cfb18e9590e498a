"""A Protobuf schema: one file, the files that it imports, and every type by its full name.

Schemas come as .proto text or as a base64 FileDescriptorProto, which is what Confluent's Python client sends.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.schema_formats.protobuf import descriptor
from headrace.schema_formats.protobuf.model import SCALARS, Enum, Field, File, Message, resolve
from headrace.schema_formats.protobuf.parser import check_fields, parse_file
from headrace.schema_formats.protobuf.printer import print_file
from headrace.schema_formats.protobuf.well_known import types_of
from headrace.schema_formats.schema import Imports, InvalidSchema

DEFAULT_NAME = "default.proto"
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*\Z")


@dataclass(slots=True)
class ProtobufSchema:
    file: File  # its type names are absolute
    types: dict[str, Message | Enum]  # of this file and of all that it can see
    imports: dict[str, "ProtobufSchema"]  # by path, what it imports itself
    canonical: str
    path: str = DEFAULT_NAME

    @property
    def name(self) -> str | None:
        return next((name for name, made in self.file.types() if isinstance(made, Message)), None)

    def descriptors(self) -> Iterator[tuple[str, bytes]]:
        """Path and FileDescriptorProto of every file, each behind those that it imports; files that
        everybody has are left out.
        """
        seen: set[str] = set()
        yield from self._descriptors(seen)

    def _descriptors(self, seen: set[str]) -> Iterator[tuple[str, bytes]]:
        for imported in self.imports.values():
            if imported.path not in seen:
                seen.add(imported.path)
                yield from imported._descriptors(seen)
        yield self.path, descriptor.encode(self.file, self.path, self.types)

    @property
    def descriptor(self) -> bytes:
        return descriptor.encode(self.file, self.path, self.types)


def parse(text: str, imports: Imports = (), path: str = DEFAULT_NAME) -> ProtobufSchema:
    made: dict[str, ProtobufSchema] = {}
    for imported_path, imported in imports:
        made[imported_path] = _parse(imported, made, imported_path)
    return _parse(text, made, path)


def text_of(text: str) -> str:
    """The schema as .proto text, however it was given."""
    data = _from_base64(text)
    return text if data is None else print_file(descriptor.decode(data)[1])


def _parse(text: str, made: dict[str, ProtobufSchema], path: str) -> ProtobufSchema:
    data = _from_base64(text)
    if data is None:
        file = parse_file(text)
    else:
        name, file = descriptor.decode(data)
        path = name or path
        for _, declared in file.types():
            if isinstance(declared, Message):
                check_fields(declared)
    if file.syntax not in ("proto2", "proto3"):
        raise InvalidSchema(f"syntax {file.syntax!r} is neither proto2 nor proto3")
    types: dict[str, Message | Enum] = {}
    imported: dict[str, ProtobufSchema] = {}
    for each in file.imports:
        known = types_of(each.path)
        if known is None:
            if each.path not in made:
                raise InvalidSchema(f"{each.path!r} is imported but is not among the references")
            imported[each.path] = made[each.path]
            known = visible_types(made[each.path])
        types.update(known)
    for name, declared in file.types():
        if name in types:
            raise InvalidSchema(f"{name} is defined twice")
        types[name] = declared
    absolute = _absolute(file, types)
    for name, declared in absolute.types():
        types[name] = declared
    return ProtobufSchema(absolute, types, imported, print_file(absolute), path)


def visible_types(schema: ProtobufSchema) -> dict[str, Message | Enum]:
    """What a file that imports this one can name: its types, and those of its public imports."""
    found = dict(schema.file.types())
    for each in schema.file.imports:
        if each.modifier == "public":
            inner = schema.imports.get(each.path)
            found.update(visible_types(inner) if inner is not None else types_of(each.path) or {})
    return found


def _from_base64(text: str) -> bytes | None:
    """The bytes, if the text is base64 at all: no .proto file is."""
    if not _BASE64.match(text) or not text.strip():
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return None


def _absolute(file: File, types: dict[str, Message | Enum]) -> File:
    def named(field: Field, scope: str) -> Field:
        if field.type in SCALARS:
            return field
        found = resolve(field.type, scope, types)
        if found is None:
            raise InvalidSchema(f"{scope}.{field.name}: {field.type!r} is not defined")
        return replace(field, type=f".{found}")

    def message(declared: Message, prefix: str) -> Message:
        scope = f"{prefix}.{declared.name}" if prefix else declared.name
        return replace(
            declared,
            fields=[named(field, scope) for field in declared.fields],
            messages=[message(inner, scope) for inner in declared.messages],
        )

    return replace(file, messages=[message(each, file.package) for each in file.messages])
