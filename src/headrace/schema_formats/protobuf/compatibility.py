"""Compatibility of Protobuf schemas: changes that break readers, by the rules of Confluent's registry.

Fields are identified by their numbers: names, order and the names of enum values may change. These may not
change: the encoding of a field, the message type of a field, required fields, messages that are removed, and
oneofs that take in fields which could be set together before.
"""

from headrace.schema_formats.protobuf.model import Enum, Field, Message
from headrace.schema_formats.protobuf.schema import ProtobufSchema
from headrace.schema_formats.schema import Budget

_VARINT, _ZIGZAG, _BYTES = "varint", "zigzag", "bytes"
ENCODINGS = {
    "int32": _VARINT,
    "int64": _VARINT,
    "uint32": _VARINT,
    "uint64": _VARINT,
    "bool": _VARINT,
    "sint32": _ZIGZAG,
    "sint64": _ZIGZAG,
    "string": _BYTES,
    "bytes": _BYTES,
    "fixed32": "fixed32",
    "sfixed32": "fixed32",
    "fixed64": "fixed64",
    "sfixed64": "fixed64",
    "float": "float",
    "double": "double",
}


def obstacles(newer: ProtobufSchema, older: ProtobufSchema) -> list[str]:
    """What keeps a reader of the newer schema from reading the older one's data; empty: nothing."""
    return _Comparison(older, newer).files()


class _Comparison:
    def __init__(self, older: ProtobufSchema, newer: ProtobufSchema) -> None:
        self._older = older
        self._newer = newer
        self._budget = Budget()
        self._seen: set[tuple[str, str]] = set()  # messages that were compared because a field holds them

    def files(self) -> list[str]:
        found = []
        if self._older.file.package != self._newer.file.package:
            found.append("PACKAGE_CHANGED at #/")
        return found + self._all(self._older.file.messages, self._newer.file.messages, "#/")

    def _all(self, older: list[Message], newer: list[Message], path: str) -> list[str]:
        now = {message.name: message for message in newer}
        found = []
        for message in older:
            at = f"{path}{message.name}/"
            if message.name not in now:
                found.append(f"MESSAGE_REMOVED at {at}")
            else:
                found += self._messages(message, now[message.name], at)
        return found

    def _messages(self, older: Message, newer: Message, path: str) -> list[str]:
        self._budget.spend()
        was = {field.number: field for field in older.fields}
        now = {field.number: field for field in newer.fields}
        found = [*self._oneofs(older, newer, was, now, path)]
        for number in sorted(was.keys() | now.keys()):
            at = f"{path}{number}"
            if number not in now:
                if was[number].label == "required":
                    found.append(f"REQUIRED_FIELD_REMOVED at {at}")
            elif number not in was:
                if now[number].label == "required":
                    found.append(f"REQUIRED_FIELD_ADDED at {at}")
            else:
                found += self._fields(was[number], now[number], at)
        return found + self._all(older.messages, newer.messages, path)

    @staticmethod
    def _oneofs(
        older: Message, newer: Message, was: dict[int, Field], now: dict[int, Field], path: str
    ) -> list[str]:
        found = []
        for name in newer.oneofs:
            members = [number for number, field in now.items() if field.oneof == name]
            moved = sum(number in was and not was[number].oneof for number in members)
            existing = sum(number in was and bool(was[number].oneof) for number in members)
            if moved > 1:
                found.append(f"MULTIPLE_FIELDS_MOVED_TO_ONEOF at {path}{name}")
            elif moved == 1 and existing:
                found.append(f"FIELD_MOVED_TO_EXISTING_ONEOF at {path}{name}")
            if name in older.oneofs:
                found += [
                    f"ONEOF_FIELD_REMOVED at {path}{name}/{number}"
                    for number, field in was.items()
                    if field.oneof == name and number not in now  # one that moved out loses nothing
                ]
        return found

    def _fields(self, was: Field, now: Field, path: str) -> list[str]:
        found = []
        if was.is_map != now.is_map:
            return [f"FIELD_KIND_CHANGED at {path}: one is a map, the other is not"]
        if was.is_map:
            found += self._types(was.key_type, now.key_type, path)
        found += self._types(was.type, now.type, path)
        encoding = self._encoding(was.type, self._older)
        is_number = not was.is_map and encoding not in (_BYTES, None)
        # packed numbers are not what a single one is
        if is_number and (was.label == "repeated") != (now.label == "repeated"):
            found.append(f"FIELD_NUMERIC_LABEL_CHANGED at {path}")
        return found

    def _types(self, was: str, now: str, path: str) -> list[str]:
        old, new = self._encoding(was, self._older), self._encoding(now, self._newer)
        if (old is None) != (new is None):
            return [f"FIELD_KIND_CHANGED at {path}: from {was} to {now}"]
        if old is not None:
            return [] if old == new else [f"FIELD_SCALAR_KIND_CHANGED at {path}: from {was} to {now}"]
        return self._held_messages(was.lstrip("."), now.lstrip("."), path)

    def _held_messages(self, was: str, now: str, path: str) -> list[str]:
        if self._local(was, self._older) != self._local(now, self._newer):
            return [f"FIELD_NAMED_TYPE_CHANGED at {path}: from {was} to {now}"]
        if (was, now) in self._seen:
            return []
        self._seen.add((was, now))
        older, newer = self._older.types.get(was), self._newer.types.get(now)
        if isinstance(older, Message) and isinstance(newer, Message):
            found = self._messages(older, newer, f"{path}/")
            return [*found, f"FIELD_NAMED_TYPE_CHANGED at {path}"] if found else []
        return []

    @staticmethod
    def _local(name: str, schema: ProtobufSchema) -> str:
        package = schema.file.package
        return name.removeprefix(f"{package}.") if package else name

    @staticmethod
    def _encoding(name: str, schema: ProtobufSchema) -> str | None:
        """How a scalar or an enum is encoded; None: it is a message."""
        if name in ENCODINGS:
            return ENCODINGS[name]
        return _VARINT if isinstance(schema.types.get(name.lstrip(".")), Enum) else None
