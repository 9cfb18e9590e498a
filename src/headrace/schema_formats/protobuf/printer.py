"""Printer of a file as .proto text, always in the same layout: for people, and to compare two files."""

from collections.abc import Iterator

from headrace.schema_formats.protobuf.model import Enum, Field, File, Message, Option
from headrace.schema_formats.protobuf.tokens import quoted


def print_file(file: File) -> str:
    return "\n".join(_file(file)) + "\n"


def _file(file: File) -> Iterator[str]:
    yield f"syntax = {quoted(file.syntax)};"
    if file.package:
        yield f"package {file.package};"
    for path, modifier in file.imports:
        yield f"import {modifier + ' ' if modifier else ''}{quoted(path)};"
    yield from _option_statements(file.options, "")
    for message in file.messages:
        yield ""
        yield from _message(message, "")
    for enum in file.enums:
        yield ""
        yield from _enum(enum, "")
    for kept in file.kept:
        yield ""
        yield kept


def _message(message: Message, indent: str) -> Iterator[str]:
    inner = indent + "  "
    yield f"{indent}message {message.name} {{"
    for kept in message.kept:
        yield inner + kept
    yield from _option_statements(message.options, inner)
    printed = 0
    oneofs: dict[str, list[Field]] = {}
    for field in message.fields:
        oneofs.setdefault(field.oneof, []).append(field)
    for field in message.fields:
        if not field.oneof:
            for nested in message.messages[printed : field.behind]:
                yield from _message(nested, inner)
            printed = max(printed, field.behind)
            yield inner + _field(field)
        elif field is oneofs[field.oneof][0]:
            yield f"{inner}oneof {field.oneof} {{"
            for member in oneofs[field.oneof]:
                yield f"{inner}  {_field(member)}"
            yield inner + "}"
    for nested in message.messages[printed:]:
        yield from _message(nested, inner)
    for enum in message.enums:
        yield from _enum(enum, inner)
    yield indent + "}"


def _enum(enum: Enum, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for kept in enum.kept:
        yield f"{indent}  {kept}"
    yield from _option_statements(enum.options, indent + "  ")
    for name, number in enum.values:
        yield f"{indent}  {name} = {number};"
    yield indent + "}"


def _field(field: Field) -> str:
    kind = f"map<{field.key_type}, {field.type}>" if field.is_map else field.type
    label = field.label + " " if field.label else ""
    options = ", ".join(f"{name} = {value}" for name, value in field.options)
    return f"{label}{kind} {field.name} = {field.number}{f' [{options}]' if options else ''};"


def _option_statements(options: list[Option], indent: str) -> Iterator[str]:
    for name, value in options:
        yield f"{indent}option {name} = {value};"
