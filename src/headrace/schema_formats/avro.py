"""Avro schemas: from JSON to types whose names are resolved.

It rejects what Avro's own parsers reject: unknown names, duplicate names, unions inside unions or with two
branches of one type, enums without symbols, invalid names, defaults of the wrong type.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from headrace.schema_formats.schema import Imports, InvalidSchema

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = frozenset(("record", "error", "enum", "fixed"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

MISSING: Any = object()  # a field without a default, which is something else than a default of null


@dataclass(slots=True, eq=False)
class AvroField:
    name: str
    type: "AvroType"
    default: Any = MISSING
    aliases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class AvroType:
    kind: str
    name: str = ""  # with its namespace; named kinds only
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    items: "AvroType | None" = None  # of an array, and the values of a map
    branches: "list[AvroType]" = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None  # of an enum
    size: int = 0

    @property
    def label(self) -> str:
        return self.name or self.kind


@dataclass(slots=True)
class AvroSchema:
    type: AvroType
    canonical: str

    @property
    def name(self) -> str | None:
        return self.type.name or None


def parse(text: str, imports: Imports = ()) -> AvroSchema:
    names: dict[str, AvroType] = {}
    try:
        for _, imported in imports:
            _Parser(names).read(_json(imported), "")
        declared = _json(text)
        return AvroSchema(_Parser(names).read(declared, ""), _canonical(declared))
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        if _NAME.match(text.strip()):
            return text.strip()  # a bare `string`, as Avro's Java parser takes it
        raise InvalidSchema(f"the Avro schema is not valid JSON: {error}") from None


def _canonical(declared: Any) -> str:
    return json.dumps(declared, ensure_ascii=False, separators=(",", ":"))


class _Parser:
    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names

    def read(self, declared: Any, namespace: str) -> AvroType:
        if isinstance(declared, str):
            return self._named(declared, namespace)
        if isinstance(declared, list):
            return self._union(declared, namespace)
        if not isinstance(declared, dict):
            raise InvalidSchema(f"{declared!r} is not an Avro type")
        kind = declared.get("type")
        match kind:
            case "record" | "error":
                return self._record(declared, namespace)
            case "enum":
                return self._enum(declared, namespace)
            case "fixed":
                return self._fixed(declared, namespace)
            case "array":
                return AvroType("array", items=self.read(self._need(declared, "items"), namespace))
            case "map":
                return AvroType("map", items=self.read(self._need(declared, "values"), namespace))
            case str() | dict() | list():
                return self.read(kind, namespace)  # {"type": "string", "logicalType": …}
        raise InvalidSchema(f"the type is missing in {_shortened(declared)}")

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise InvalidSchema(f"{name!r} is not defined")
        return found

    def _union(self, declared: list[Any], namespace: str) -> AvroType:
        branches = [self.read(branch, namespace) for branch in declared]
        labels: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchema("a union cannot contain a union")
            if branch.label in labels:
                raise InvalidSchema(f"a union has two branches of {branch.label}")
            labels.add(branch.label)
        return AvroType("union", branches=branches)

    def _record(self, declared: dict[str, Any], namespace: str) -> AvroType:
        made = self._define("record", declared, namespace)
        inner = made.name.rpartition(".")[0]
        fields = self._need(declared, "fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"the fields of {made.name} must be a list")
        seen: set[str] = set()
        for each in fields:
            if not isinstance(each, dict):
                raise InvalidSchema(f"a field of {made.name} must be an object")
            name = self._need(each, "name")
            if not isinstance(name, str) or not _NAME.match(name):
                raise InvalidSchema(f"{name!r} cannot be the name of a field of {made.name}")
            if name in seen:
                raise InvalidSchema(f"{made.name} has two fields {name!r}")
            seen.add(name)
            kind = self.read(self._need(each, "type"), inner)
            default = each.get("default", MISSING)
            if default is not MISSING and not is_default(kind, default):
                raise InvalidSchema(f"the default of {made.name}.{name} is not a {kind.label}")
            made.fields.append(AvroField(name, kind, default, tuple(_texts(each, "aliases"))))
        return made

    def _enum(self, declared: dict[str, Any], namespace: str) -> AvroType:
        made = self._define("enum", declared, namespace)
        symbols = _texts(declared, "symbols")
        if not symbols or len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"enum {made.name} must have symbols, without duplicates")
        for symbol in symbols:
            if not _NAME.match(symbol):
                raise InvalidSchema(f"{symbol!r} cannot be a symbol of {made.name}")
        made.symbols = tuple(symbols)
        made.default = declared.get("default")
        if made.default is not None and made.default not in symbols:
            raise InvalidSchema(f"the default of enum {made.name} is not one of its symbols")
        return made

    def _fixed(self, declared: dict[str, Any], namespace: str) -> AvroType:
        made = self._define("fixed", declared, namespace)
        size = self._need(declared, "size")
        if type(size) is not int or size < 0:
            raise InvalidSchema(f"the size of {made.name} is {size!r}: must be a non-negative integer")
        made.size = size
        return made

    def _define(self, kind: str, declared: dict[str, Any], namespace: str) -> AvroType:
        name = self._need(declared, "name")
        if not isinstance(name, str):
            raise InvalidSchema(f"{name!r} is not a valid name")
        if "." not in name:
            given = declared.get("namespace", namespace)
            if not isinstance(given, str):
                raise InvalidSchema(f"the namespace of {name} must be a string")
            name = f"{given}.{name}" if given else name
        if not all(_NAME.match(part) for part in name.split(".")) or name in PRIMITIVES:
            raise InvalidSchema(f"{name!r} cannot be the name of a type")
        if name in self._names:
            raise InvalidSchema(f"{name} is defined twice")
        space = name.rpartition(".")[0]
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}"
            for alias in _texts(declared, "aliases")
        )
        made = self._names[name] = AvroType(kind, name, aliases)
        return made

    @staticmethod
    def _need(declared: dict[str, Any], key: str) -> Any:
        if key not in declared:
            raise InvalidSchema(f"{key!r} is missing in {_shortened(declared)}")
        return declared[key]


def _texts(declared: dict[str, Any], key: str) -> list[str]:
    given = declared.get(key, [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidSchema(f"{key!r} must be a list of strings")
    return given


def _shortened(declared: Any) -> str:
    text = json.dumps(declared)
    return text if len(text) <= 100 else text[:97] + "..."


def is_default(kind: AvroType, value: Any) -> bool:
    """Whether JSON's `value` can stand for a missing field of that type."""
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -(2**31) <= value < 2**31
        case "long":
            return type(value) is int and -(2**63) <= value < 2**63
        case "float" | "double":
            return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")
        case "string" | "bytes" | "fixed":
            return isinstance(value, str)
        case "enum":
            return value in kind.symbols
        case "array":
            assert kind.items is not None
            return isinstance(value, list) and all(is_default(kind.items, one) for one in value)
        case "map":
            assert kind.items is not None
            return isinstance(value, dict) and all(is_default(kind.items, one) for one in value.values())
        case "union":
            # Avro asks for the first branch, and newer parsers take any
            return any(is_default(branch, value) for branch in kind.branches)
    return isinstance(value, dict) and all(
        is_default(each.type, value[each.name]) if each.name in value else each.default is not MISSING
        for each in kind.fields
    )
