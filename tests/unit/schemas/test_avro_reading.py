"""Avro bytes that are damaged are refused, not read as something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.schemas import avro

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]}
MAYBE = ["null", "long", "string"]
BOTH = {
    "type": "record",
    "name": "Both",
    "fields": [
        {"name": "first", "type": COLOUR},
        {"name": "again", "type": "Colour"},  # by its name alone
        {"name": "many", "type": {"type": "array", "items": ["null", "Colour"]}},
        {"name": "by_name", "type": {"type": "map", "values": MAYBE}},
    ],
}
GOOD = {
    "first": "RED",
    "again": "BLUE",
    "many": ["GREEN", None],
    "by_name": {"a": 1, "b": "x", "c": None},
}


def zigzag(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def reader(schema: Any, *, is_resolved: bool = False) -> Any:
    wanted = None
    if is_resolved:
        wanted = avro.compiled(json.dumps(schema), [])
        if isinstance(wanted, dict):
            wanted = {**wanted, "doc": "another text of the same"}
    return avro.reader(avro.compiled(json.dumps(schema)), wanted)


@pytest.mark.parametrize("is_resolved", [False, True], ids=["as written", "by a reader's schema"])
@pytest.mark.parametrize("index", [-1, -2, -3, 3, 4, 2**40, -(2**40)])
def test_an_index_outside_is_refused(index: int, is_resolved: bool) -> None:
    number = zigzag(index)
    text = zigzag(1) + b"x"
    for schema, data in (
        (COLOUR, number),
        (MAYBE, number + text),
        ({"type": "array", "items": COLOUR}, zigzag(1) + number + zigzag(0)),
        ({"type": "array", "items": MAYBE}, zigzag(1) + number + text + zigzag(0)),
        ({"type": "map", "values": COLOUR}, zigzag(1) + text + number + zigzag(0)),
        (BOTH, number),
        (BOTH, zigzag(0) + number),
        (BOTH, zigzag(0) + zigzag(0) + zigzag(1) + zigzag(1) + number),
    ):
        with pytest.raises(ValueError, match=f"index {index} is not among the 3"):
            reader(schema, is_resolved=is_resolved)(data)


@pytest.mark.parametrize("is_resolved", [False, True], ids=["as written", "by a reader's schema"])
def test_what_is_right_is_read(is_resolved: bool) -> None:
    for schema, value in ((COLOUR, "BLUE"), (MAYBE, "x"), (MAYBE, None), (BOTH, GOOD)):
        data = avro.writer(avro.compiled(json.dumps(schema)))(value)
        assert reader(schema, is_resolved=is_resolved)(data) == value


def test_imported_types_are_refused_alike() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": "Colour"}]}
    read = avro.reader(avro.compiled(json.dumps(schema), [("Colour", json.dumps(COLOUR))]))
    assert read(zigzag(2)) == {"c": "BLUE"}
    with pytest.raises(ValueError, match="index -1 is not among the 3 symbols of the enum Colour"):
        read(zigzag(-1))
