"""Compatibility of JSON schemas: differences by which documents of the older schema are not valid in the
newer.

The names of the differences, and the rules, are those of Confluent's registry. One rule is surprising: a
property may be added only if the older schema did not allow unknown properties, because an old document may
already have a property of that name and another type.
"""

from collections.abc import Iterable
from typing import Any

import re2

from headrace.schema_formats.json_schema import JsonSchema, Part
from headrace.schema_formats.schema import Budget, InvalidSchema


def obstacles(newer: JsonSchema, older: JsonSchema) -> list[str]:
    """What of the older schema's documents the newer one might refuse; empty: nothing."""
    try:
        return _Comparison().compare(older.root, newer.root, "#")
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None


class _Comparison:
    def __init__(self) -> None:
        self._budget = Budget()
        self._under_way: set[tuple[int, int]] = set()  # parts that contain themselves

    def compare(self, older: Part, newer: Part, path: str) -> list[str]:
        older, newer = older.followed(), newer.followed()
        pair = (id(older.value), id(newer.value))
        is_container = isinstance(older.value, dict) and isinstance(newer.value, dict)
        if is_container and pair in self._under_way:
            return []
        self._budget.spend()
        if is_container:
            self._under_way.add(pair)
        try:
            return self._compare(older, newer, path)
        finally:
            if is_container:
                self._under_way.discard(pair)

    def _compare(self, older: Part, newer: Part, path: str) -> list[str]:
        was, now = older.combination, newer.combination
        if was is None and now is not None:
            criterion, parts = now
            if (criterion != "allOf" or len(parts) == 1) and any(
                not self.compare(older, part, path) for part in parts
            ):
                return []
        elif was is not None and now is None:
            _, parts = was
            if len(parts) == 1 and not self.compare(parts[0], newer, path):
                return []
        if older.sort != newer.sort:
            if older.sort == "false" or newer.sort == "empty":
                return []
            return [f"TYPE_CHANGED at {path}: from {older.sort} to {newer.sort}"]
        match older.sort:
            case "combined":
                assert was is not None
                assert now is not None
                return self._combinations(was, now, path)
            case "string":
                return self._strings(older, newer, path)
            case "number":
                return self._numbers(older, newer, path)
            case "enum":
                return self._enums(older, newer, path)
            case "not":
                narrowed = self.compare(newer.inner(newer.get("not")), older.inner(older.get("not")), path)
                return [f"NOT_TYPE_EXTENDED at {path}/not"] if narrowed else []
            case "object":
                return self._objects(older, newer, path)
            case "array":
                return self._arrays(older, newer, path)
        return []

    # --- combinations -------------------------------------------------------------------------------------

    def _combinations(self, was: tuple[str, list[Part]], now: tuple[str, list[Part]], path: str) -> list[str]:
        older_criterion, older_parts = was
        criterion, parts = now
        if older_criterion != criterion and criterion != "anyOf":
            are_single = len(older_parts) == 1 and (criterion == "oneOf" or len(parts) == 1)
            if not are_single:
                return [f"COMBINED_TYPE_CHANGED at {path}: from {older_criterion} to {criterion}"]
        found = []
        if len(older_parts) < len(parts) and criterion == "allOf":
            found.append(f"PRODUCT_TYPE_EXTENDED at {path}")
        if len(older_parts) > len(parts) and criterion != "allOf":
            found.append(f"SUM_TYPE_NARROWED at {path}")
        fits = [
            [not self.compare(older, newer, f"{path}/{older_criterion}/{number}") for newer in parts]
            for number, older in enumerate(older_parts)
        ]
        if _matching_size(fits, len(parts)) < min(len(older_parts), len(parts)):
            found.append(f"COMBINED_TYPE_SUBSCHEMAS_CHANGED at {path}")
        return found

    # --- scalars ------------------------------------------------------------------------------------------

    def _strings(self, older: Part, newer: Part, path: str) -> list[str]:
        found = [
            *_upper(older, newer, "maxLength", "MAX_LENGTH", path),
            *_lower(older, newer, "minLength", "MIN_LENGTH", path),
        ]
        pattern = newer.get("pattern")
        if pattern is not None and pattern != older.get("pattern"):
            change = "ADDED" if older.get("pattern") is None else "CHANGED"
            found.append(f"PATTERN_{change} at {path}/pattern")
        return found

    def _numbers(self, older: Part, newer: Part, path: str) -> list[str]:
        found = [
            *_upper(older, newer, "maximum", "MAXIMUM", path),
            *_lower(older, newer, "minimum", "MINIMUM", path),
            *_upper(older, newer, "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", path),
            *_lower(older, newer, "exclusiveMinimum", "EXCLUSIVE_MINIMUM", path),
        ]
        was, now = older.get("multipleOf"), newer.get("multipleOf")
        if now is not None and now != was:
            if was is None:
                found.append(f"MULTIPLE_OF_ADDED at {path}/multipleOf")
            elif was % now != 0:
                change = "CHANGED" if now % was else "EXPANDED"
                found.append(f"MULTIPLE_OF_{change} at {path}/multipleOf")
        if newer.get("type") == "integer" and older.get("type") != "integer":
            found.append(f"TYPE_NARROWED at {path}: from number to integer")
        return found

    @staticmethod
    def _enums(older: Part, newer: Part, path: str) -> list[str]:
        allowed = _values(newer)
        gone = [value for value in _values(older) if value not in allowed]
        return [f"ENUM_ARRAY_NARROWED at {path}/enum: {value!r} is gone" for value in gone]

    # --- objects ------------------------------------------------------------------------------------------

    def _objects(self, older: Part, newer: Part, path: str) -> list[str]:
        return [
            *self._required(older, newer, path),
            *self._properties(older, newer, path),
            *self._dependencies(older, newer, path),
            *self._additional(older, newer, "additionalProperties", "ADDITIONAL_PROPERTIES", path),
            *_upper(older, newer, "maxProperties", "MAX_PROPERTIES", path),
            *_lower(older, newer, "minProperties", "MIN_PROPERTIES", path),
        ]

    @staticmethod
    def _required(older: Part, newer: Part, path: str) -> Iterable[str]:
        was, now = older.get("properties", {}), newer.get("properties", {})
        for name in sorted(set(newer.get("required", ())) - set(older.get("required", ()))):
            if name in was and name in now and not _has_default(newer.inner(now[name])):
                yield f"REQUIRED_ATTRIBUTE_ADDED at {path}/required/{name}"

    def _properties(self, older: Part, newer: Part, path: str) -> Iterable[str]:
        was, now = older.get("properties", {}), newer.get("properties", {})
        for name in was:
            at = f"{path}/properties/{name}"
            if name in now:
                yield from self.compare(older.inner(was[name]), newer.inner(now[name]), at)
            elif not _is_open(newer):
                yield from self._removed(older.inner(was[name]), newer, name, at)
        for name in now:
            if name not in was:
                yield from self._added(older, newer, name, f"{path}/properties/{name}")

    def _removed(self, gone: Part, newer: Part, name: str, path: str) -> Iterable[str]:
        covering = _covering(newer, name)
        if covering is not None:
            if self.compare(gone, covering, path):
                yield f"PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {path}"
        elif gone.followed().sort != "false":
            yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {path}"

    def _added(self, older: Part, newer: Part, name: str, path: str) -> Iterable[str]:
        fresh = newer.inner(newer.get("properties")[name])
        if _is_open(older):
            if fresh.followed().sort != "empty":
                yield f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {path}"
            return
        covering = _covering(older, name)
        if covering is not None and self.compare(covering, fresh, path):
            yield f"PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {path}"
        if name in newer.get("required", ()) and not _has_default(fresh):
            yield f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at {path}"

    def _dependencies(self, older: Part, newer: Part, path: str) -> Iterable[str]:
        was, now = _dependencies(older), _dependencies(newer)
        for name, needed in now.items():
            at = f"{path}/dependencies/{name}"
            before = was.get(name)
            if isinstance(needed, list):
                if not isinstance(before, list):
                    yield f"DEPENDENCY_ARRAY_ADDED at {at}"
                elif not set(needed) <= set(before):
                    change = "EXTENDED" if set(needed) >= set(before) else "CHANGED"
                    yield f"DEPENDENCY_ARRAY_{change} at {at}"
            elif before is None or isinstance(before, list):
                yield f"DEPENDENCY_SCHEMA_ADDED at {at}"
            else:
                yield from self.compare(older.inner(before), newer.inner(needed), at)

    def _additional(self, older: Part, newer: Part, key: str, label: str, path: str) -> Iterable[str]:
        was, now = older.get(key, True), newer.get(key, True)
        if now is True or now == {}:
            return
        if now is False:
            if was is not False:
                yield f"{label}_REMOVED at {path}/{key}"
        elif was is True or was == {}:
            yield f"{label}_NARROWED at {path}/{key}"
        elif was is not False:
            yield from self.compare(older.inner(was), newer.inner(now), f"{path}/{key}")

    # --- arrays -------------------------------------------------------------------------------------------

    def _arrays(self, older: Part, newer: Part, path: str) -> list[str]:
        found = [
            *_upper(older, newer, "maxItems", "MAX_ITEMS", path),
            *_lower(older, newer, "minItems", "MIN_ITEMS", path),
        ]
        if newer.get("uniqueItems") and not older.get("uniqueItems"):
            found.append(f"UNIQUE_ITEMS_ADDED at {path}/uniqueItems")
        was, now = _each_item(older), _each_item(newer)
        if now is not None and was is None and not _tuple(older):
            if now.followed().sort != "empty":
                found.append(f"SCHEMA_ADDED at {path}/items")
        elif now is not None and was is not None:
            found += self.compare(was, now, f"{path}/items")
        return [*found, *self._tuples(older, newer, path)]

    def _tuples(self, older: Part, newer: Part, path: str) -> Iterable[str]:
        was, now = _tuple(older), _tuple(newer)
        for number, (before, after) in enumerate(zip(was, now, strict=False)):
            yield from self.compare(before, after, f"{path}/items/{number}")
        for number in range(len(now), len(was)):
            at = f"{path}/items/{number}"
            rest = _further_items(newer)
            if rest.followed().sort == "false":
                if was[number].followed().sort != "false":
                    yield f"ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL at {at}"
            elif self.compare(was[number], rest, at):
                yield f"ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {at}"
        for number in range(len(was), len(now)):
            at = f"{path}/items/{number}"
            rest = _further_items(older)
            if rest.followed().sort == "empty":
                if now[number].followed().sort != "empty":
                    yield f"ITEM_ADDED_TO_OPEN_CONTENT_MODEL at {at}"
            elif rest.followed().sort != "false" and self.compare(rest, now[number], at):
                yield f"ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL at {at}"
        if was or now:
            rest_was, rest_now = _further_items(older), _further_items(newer)
            if rest_now.followed().sort == "false" and rest_was.followed().sort != "false":
                yield f"ADDITIONAL_ITEMS_REMOVED at {path}/additionalItems"
            elif rest_was.followed().sort == "empty" and rest_now.followed().sort != "empty":
                yield f"ADDITIONAL_ITEMS_NARROWED at {path}/additionalItems"


def _matching_size(fits: list[list[bool]], width: int) -> int:
    """How many older parts can each have a newer one of their own (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column in range(width):
            if fits[row][column] and column not in tried:
                tried.add(column)
                if column not in owner or place(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(fits)))


def _upper(older: Part, newer: Part, key: str, label: str, path: str) -> Iterable[str]:
    was, now = older.get(key), newer.get(key)
    if _is_number(now) and not _is_number(was):
        yield f"{label}_ADDED at {path}/{key}"
    elif _is_number(now) and now < was:
        yield f"{label}_DECREASED at {path}/{key}: from {was} to {now}"


def _lower(older: Part, newer: Part, key: str, label: str, path: str) -> Iterable[str]:
    was, now = older.get(key), newer.get(key)
    if _is_number(now) and not _is_number(was):
        yield f"{label}_ADDED at {path}/{key}"
    elif _is_number(now) and now > was:
        yield f"{label}_INCREASED at {path}/{key}: from {was} to {now}"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _values(part: Part) -> list[Any]:
    return part.get("enum") if "enum" in part.value else [part.get("const")]


def _has_default(part: Part) -> bool:
    return isinstance(part.value, dict) and "default" in part.value


def _is_open(part: Part) -> bool:
    """Any further property is allowed."""
    return not part.get("patternProperties") and part.get("additionalProperties", True) in (True, {})


def _covering(part: Part, name: str) -> Part | None:
    """What a property that is not listed must be like; None: it may not be there."""
    for pattern, covering in part.get("patternProperties", {}).items():
        if _matches(pattern, name):
            return part.inner(covering)
    additional = part.get("additionalProperties", True)
    return part.inner(additional) if isinstance(additional, dict) and additional else None


def _matches(pattern: str, name: str) -> bool:
    """Whether RE2 matches: the pattern comes from a client, and must not keep the broker busy."""
    try:
        return re2.search(pattern, name) is not None
    except re2.error as error:
        raise InvalidSchema(f"the pattern {pattern!r} is not a valid regular expression: {error}") from None


def _dependencies(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("dependencies", "dependentRequired", "dependentSchemas"):
        given = part.get(key)
        if isinstance(given, dict):
            found.update(given)
    return found


def _tuple(part: Part) -> list[Part]:
    """Schemas of the first items, one by one."""
    items = part.get("prefixItems") or part.get("items")
    return [part.inner(each) for each in items] if isinstance(items, list) else []


def _each_item(part: Part) -> Part | None:
    """The schema of all items alike."""
    items = part.get("items")
    return part.inner(items) if isinstance(items, dict | bool) and "prefixItems" not in part.value else None


def _further_items(part: Part) -> Part:
    """The schema of items behind those of `_tuple`."""
    if "prefixItems" in part.value:
        return part.inner(part.get("items", True))
    if isinstance(part.get("items"), list):
        return part.inner(part.get("additionalItems", True))
    return part.inner(part.get("items", True))
