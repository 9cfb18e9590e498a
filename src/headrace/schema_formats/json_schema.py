"""JSON schemas: a document, its references, and the sort of each of its parts.

It supports the keywords that a comparison needs, and ignores unknown ones. References point to another part
of the same document, or to a schema that was registered under the name that they use.
"""

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any
from urllib.parse import unquote

from headrace.schema_formats.schema import Imports, InvalidSchema

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
CRITERIA = ("allOf", "anyOf", "oneOf")

# Keywords that betray a part's type where `type` is not given.
_BETRAYED = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
    ),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_OWN = frozenset(("type", "enum", "const", "not", *(key for keys in _BETRAYED.values() for key in keys)))

# Of whole numbers that are compared: beyond it they cannot be divided by fractions.
NUMBER_BITS_MAX = 1000

# Of an index in a JSON pointer; no list that fits into a schema is longer.
PLACE_DIGITS_MAX = 9

# A chain of references that only refer to each other ends here.
REFERENCES_MAX = 100


@dataclass(slots=True)
class JsonSchema:
    document: Any
    canonical: str
    documents: dict[str, Any]

    @property
    def name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    @property
    def root(self) -> "Part":
        return Part(self.document, self.document, self.documents)


def parse(text: str, imports: Imports = ()) -> JsonSchema:
    documents = {name: _json(imported) for name, imported in imports}
    document = _json(text)
    try:
        _check(document, "#")
        schema = JsonSchema(
            document, json.dumps(document, ensure_ascii=False, separators=(",", ":")), documents
        )
        _check_references(document, schema)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    return schema


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"the JSON schema is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_LISTS = (*CRITERIA, "prefixItems")
_SINGLE = (
    "additionalProperties",
    "additionalItems",
    "not",
    "contains",
    "propertyNames",
    "items",
    "if",
    "then",
    "else",
)


def _check(part: Any, path: str) -> None:
    """Raises for what no JSON schema can have."""
    if isinstance(part, bool):
        return
    if not isinstance(part, dict):
        raise InvalidSchema(f"{path} must be an object, true or false")
    kinds = part.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            raise InvalidSchema(f"{path}/type: {kind!r} is not a JSON type")
    for key in _MAPS:
        inner = part.get(key, {})
        if not isinstance(inner, dict):
            raise InvalidSchema(f"{path}/{key} must be an object")
        for name, each in inner.items():
            _check(each, f"{path}/{key}/{name}")
    for key in _LISTS:
        listed = part.get(key, [True])
        if not isinstance(listed, list) or not listed:
            raise InvalidSchema(f"{path}/{key} must be a list of schemas")
        for number, each in enumerate(listed):
            _check(each, f"{path}/{key}/{number}")
    for key in _SINGLE:
        inner = part.get(key, True)
        for number, each in enumerate(inner if key == "items" and isinstance(inner, list) else [inner]):
            _check(each, f"{path}/{key}" if not number else f"{path}/{key}/{number}")
    required = part.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise InvalidSchema(f"{path}/required must be a list of names")
    if not isinstance(part.get("enum", []), list):
        raise InvalidSchema(f"{path}/enum must be a list")
    for key in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"):
        if not _is_finite(part.get(key, 0)) or part.get(key, 0) < 0:
            raise InvalidSchema(f"{path}/{key} must be a non-negative integer")
    for key in ("minimum", "maximum"):
        if not _is_finite(part.get(key, 0)):
            raise InvalidSchema(f"{path}/{key} is not a number")
    factor = part.get("multipleOf", 1)
    if not _is_finite(factor) or factor <= 0:
        raise InvalidSchema(f"{path}/multipleOf must be a number greater than 0")


def _is_finite(value: Any) -> bool:
    """Whether it is a number of JSON that can be computed with; JSON itself has no infinity."""
    if type(value) is int:
        return value.bit_length() <= NUMBER_BITS_MAX
    return type(value) is float and isfinite(value)


def _place(step: str) -> int | None:
    """An index in a list, as a JSON pointer writes it."""
    is_index = step.isascii() and step.isdecimal() and len(step) <= PLACE_DIGITS_MAX
    return int(step) if is_index else None


def _check_references(node: Any, schema: JsonSchema) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            Part(node, schema.document, schema.documents).followed()
        for each in node.values():
            _check_references(each, schema)
    elif isinstance(node, list):
        for each in node:
            _check_references(each, schema)


@dataclass(slots=True)
class Part:
    """A schema inside a document."""

    value: Any  # an object, true or false
    document: Any  # where its local references point
    documents: dict[str, Any]

    def inner(self, value: Any) -> "Part":
        return Part(value, self.document, self.documents)

    def get(self, key: str, default: Any = None) -> Any:
        return self.value.get(key, default) if isinstance(self.value, dict) else default

    def followed(self) -> "Part":
        """The part itself, or what it refers to."""
        part = self
        for _ in range(REFERENCES_MAX):
            reference = part.get("$ref")
            if not isinstance(reference, str):
                return part
            part = part._at(reference)
        raise InvalidSchema(f"{self.get('$ref')!r} refers to itself")

    def _at(self, reference: str) -> "Part":
        name, _, pointer = reference.partition("#")
        document = self.document
        own = document.get("$id") if isinstance(document, dict) else None
        if name and name != own:
            if name not in self.documents:
                raise InvalidSchema(f"{reference!r} refers to a schema that is not among the references")
            document = self.documents[name]
        value = document
        for step in unquote(pointer).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and (place := _place(step)) is not None and place < len(value):
                value = value[place]
            elif isinstance(value, dict) and step in value:
                value = value[step]
            else:
                raise InvalidSchema(f"{reference!r} refers to a part that does not exist")
        return Part(value, document, self.documents)

    # --- what it is ---------------------------------------------------------------------------------------

    @property
    def sort(self) -> str:
        """Of which sort this (followed) part is: a type of JSON, `combined`, `enum`, `not`, `empty` or
        `false`.
        """
        if self.value is False:
            return "false"
        if self.value is True or not isinstance(self.value, dict):
            return "empty"
        if self.combination is not None:
            return "combined"
        if "enum" in self.value or "const" in self.value:
            return "enum"
        if "not" in self.value and not any(key in self.value for key in ("type", *_BETRAYED["object"])):
            return "not"
        return self._type or "empty"

    @property
    def _type(self) -> str | None:
        kind = self.get("type")
        if isinstance(kind, list):
            kind = kind[0] if kind else None
        if kind is None:
            for betrayed, keys in _BETRAYED.items():
                if any(key in self.value for key in keys):
                    return betrayed
            return None
        return "number" if kind == "integer" else str(kind)

    @property
    def combination(self) -> "tuple[str, list[Part]] | None":
        """The criterion and the parts of a part that is made of others: of several types, of `oneOf` and the
        like, or of both an own body and such.
        """
        if not isinstance(self.value, dict):
            return None
        groups = [
            (criterion, [self.inner(each) for each in self.value[criterion]])
            for criterion in CRITERIA
            if criterion in self.value
        ]
        own = {key: value for key, value in self.value.items() if key in _OWN}
        kinds = own.get("type")
        if isinstance(kinds, list) and len(kinds) > 1 and "enum" not in own:
            rest = {key: value for key, value in own.items() if key != "type"}
            groups.append(("anyOf", [self.inner(_of_type(kind, rest)) for kind in kinds]))
            own = {}
        if not groups:
            return None
        if not own and len(groups) == 1:
            return groups[0]
        parts = [self.inner({criterion: [each.value for each in parts]}) for criterion, parts in groups]
        return "allOf", [*([self.inner(own)] if own else []), *parts]


def _of_type(kind: str, rest: dict[str, Any]) -> dict[str, Any]:
    """The keywords that matter for one of several types."""
    betrayed = "number" if kind == "integer" else kind
    return {"type": kind} | {key: value for key, value in rest.items() if key in _BETRAYED.get(betrayed, ())}
