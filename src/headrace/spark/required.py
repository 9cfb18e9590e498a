"""Columns that a query declares NOT NULL: a record without one is not what the query reads.

Decoders show what is not there as null, and Spark trusts the declaration blindly, so it is checked here, for
all formats alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.spark.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa


def relaxed(kind: pa.DataType) -> pa.DataType:
    """The type without such declarations: Arrow's JSON reader heeds some of them, by other rules."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, relaxed(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(relaxed(kind.value_type))
    return kind


def required(schema: pa.Schema) -> list[pa.Field]:
    """The columns that must be there, or have a field that must."""
    return [field for field in schema if _is_required(field)]


def _is_required(field: pa.Field) -> bool:
    import pyarrow as pa

    inner = field.type if pa.types.is_struct(field.type) else ()
    return not field.nullable or any(map(_is_required, inner))


def missing(shown: pa.Table, required: list[pa.Field]) -> dict[int, str]:
    """The rows that lack something, each with the first that it lacks."""
    rows: dict[int, str] = {}
    for field in required:
        column = shown[field.name].combine_chunks()
        for row, path in _missing(column, field, column.is_null(), field.name):
            rows.setdefault(row, f"{path} is missing, and declared NOT NULL")
    return rows


def _missing(
    column: pa.Array, field: pa.Field, is_null: pa.BooleanArray, path: str
) -> Iterator[tuple[int, str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not field.nullable and column.null_count:
        for row in pc.indices_nonzero(is_null).to_pylist():
            yield row, path
    if pa.types.is_struct(field.type):
        for child in field.type:
            inner = pc.struct_field(column, child.name)
            lacks = pc.and_not(inner.is_null(), column.is_null())  # a struct that is not there lacks nothing
            yield from _missing(inner, child, lacks, f"{path}.{child.name}")


def check_nullable(wanted: pa.StructType) -> None:
    """Of a query that wants what cannot be decoded shown as nulls."""
    for field in wanted:
        if not field.nullable:
            raise InvalidOption(
                f"mode PERMISSIVE shows nulls, and the column {field.name} is declared NOT NULL"
            )
