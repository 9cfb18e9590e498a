"""Columns: arrays of flat structs, as codecs read and write them if they are asked to (`in_columns`).

An array of structs that have only integers and strings becomes a tuple with a list for each field, in the
order of their declaration, instead of a list of objects.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.protocol._flat_structs import read_columns
from headrace.protocol.notation import INT16, INT32, INT64, STRING, Primitive, Struct

# Structs that are read between two pauses of a decoding in steps: some tenths of a millisecond.
ROWS_PER_STEP = 1_024


def is_flat(kind: Primitive | type[Struct], version: int) -> bool:
    """Whether an array of these can be columns."""
    if isinstance(kind, Primitive):
        return False
    return all(
        field.kind in (INT16, INT32, INT64, STRING) and field.tag is None
        for field in kind.__fields__
        if version in field.versions
    )


def layout_of(kind: type[Struct], version: int) -> bytes:
    """A letter for each field that the version has."""
    letters = ""
    for field in kind.__fields__:
        if field.stands_in(version):
            assert isinstance(field.kind, Primitive)
            is_nullable = version in field.nullable
            letters += field.kind.code or ("S" if is_nullable else "s")
    return letters.encode()


def read_in_steps(
    message: bytes, position: int, count: int, layout: bytes, is_flexible: bool
) -> Generator[None, None, tuple[list[list[Any]], int]]:
    """`read_columns`, with pauses."""
    columns: list[list[Any]] = [[] for _ in layout]
    while count:
        rows = min(count, ROWS_PER_STEP)
        more, position = read_columns(message, position, rows, layout, is_flexible)
        for column, values in zip(columns, more):
            column += values
        count -= rows
        yield
    return columns, position
