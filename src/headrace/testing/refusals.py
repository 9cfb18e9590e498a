"""Error responses to any request, with the error code that a test wants.

A client expects each topic, partition or group of its request in the response. So the list with error codes
in the response gets an entry for each entry of the request's first list, with the fields that both have.
"""

from typing import Any

from headrace.protocol.notation import Array, Field, Struct

# The same thing under the names that different messages have for it.
SYNONYMS = (("name", "topic", "topic_name"), ("index", "partition", "partition_index"), ("key", "group_id"))


def refusal(kind: type[Struct], version: int, request: Any, code: int) -> Any:
    """A message of this type that answers the request, or one entry of it, with the error code.

    None: in this version the message has no field for an error.
    """
    carried = [field for field in kind.__fields__ if version in field.versions]
    told = {
        field.name: value
        for field in carried
        if not _inner(field) and (value := _counterpart(field.name, request)) is not None
    }
    asked = _first_list(request)
    for field in carried:
        inner = _inner(field)
        if asked and inner is not None and isinstance(field.kind, Array):
            entries = [refusal(inner, version, one, code) for one in asked]
            if entries[0] is not None:
                return kind(**told, **{field.name: entries})
    for field in carried:
        if field.name.endswith("error_code"):
            return kind(**told, **{field.name: code})
    return None


def _counterpart(name: str, request: Any) -> Any:
    """The request's value of the field with this name, or with another name for the same."""
    names = next((synonyms for synonyms in SYNONYMS if name in synonyms), (name,))
    if not isinstance(request, Struct):  # an entry of a plain list: a topic's name, a group, a partition
        return request if len(names) > 1 and isinstance(request, int) == ("index" in names) else None
    for candidate in (name, *names):
        value = getattr(request, candidate, None)
        if value is not None and not isinstance(value, list | Struct):
            return value
    return None


def _first_list(request: Any) -> list[Any]:
    """What the request asks about: its first list that is not empty."""
    if isinstance(request, Struct):
        for field in type(request).__fields__:
            value = getattr(request, field.name)
            if isinstance(value, list) and value:
                return value
    return []


def _inner(field: Field) -> type[Struct] | None:
    """The struct that a field holds one or many of."""
    held = field.kind.element if isinstance(field.kind, Array) else field.kind
    return held if isinstance(held, type) and issubclass(held, Struct) else None
