"""Columns are added and widened; nothing else happens to them silently."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.lake.errors import WrongTable
from headrace.lake.schema import fits, joined_schema


def test_columns_are_added_at_the_end_and_may_be_null() -> None:
    table = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    rows = pa.schema([pa.field("c", pa.bool_(), nullable=False), pa.field("a", pa.int64())])
    assert joined_schema(table, rows) == pa.schema([*table, pa.field("c", pa.bool_())])


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (pa.int32(), pa.int64()),
        (pa.int8(), pa.int16()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.string()),
        (pa.list_(pa.field("item", pa.int32())), pa.list_(pa.field("element", pa.int64()))),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
        (pa.map_(pa.string(), pa.float32()), pa.map_(pa.string(), pa.float64())),
    ],
    ids=str,
)
def test_types_that_lose_nothing_fit(rows: pa.DataType, table: pa.DataType) -> None:
    assert fits(rows, table)
    assert joined_schema(pa.schema([("x", table)]), pa.schema([("x", rows)])) == pa.schema([("x", table)])


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())])),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
    ],
    ids=str,
)
def test_types_that_would_lose_something_are_refused(rows: pa.DataType, table: pa.DataType) -> None:
    with pytest.raises(WrongTable, match="column x"):
        joined_schema(pa.schema([("x", table)]), pa.schema([("x", rows)]))


def test_names_that_differ_only_in_their_case_are_refused() -> None:
    with pytest.raises(WrongTable, match="only in its case"):
        joined_schema(pa.schema([("id", pa.int64())]), pa.schema([("ID", pa.int64())]))


def test_fields_are_added_inside_structures_too() -> None:
    table = pa.struct([("a", pa.int64()), ("b", pa.string())])
    rows = pa.struct([("c", pa.bool_()), ("a", pa.int32())])
    joined = joined_schema(
        pa.schema([("x", pa.list_(pa.field("element", table)))]), pa.schema([("x", pa.list_(rows))])
    )
    assert joined.field("x").type.value_type == pa.struct([*table, ("c", pa.bool_())])
    assert not fits(rows, table)
    assert fits(pa.struct([("b", pa.string())]), table)  # what is missing is null
    with pytest.raises(WrongTable, match=r"column x\.A differs from the table's x\.a only in its case"):
        joined_schema(pa.schema([("x", table)]), pa.schema([("x", pa.struct([("A", pa.int64())]))]))


@pytest.mark.parametrize(
    ("table", "rows", "wide"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.int8(), pa.int64()),
        (
            pa.struct([("a", pa.int32()), ("b", pa.int64())]),
            pa.struct([("a", pa.int64()), ("b", pa.int32())]),
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
        ),
        (
            pa.map_(pa.string(), pa.float32()),
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.float64()),
        ),
    ],
    ids=str,
)
def test_a_table_of_results_gets_wider_columns(
    table: pa.DataType, rows: pa.DataType, wide: pa.DataType
) -> None:
    joined = joined_schema(pa.schema([("x", table)]), pa.schema([("x", rows)]), widens=True)
    assert joined == pa.schema([("x", wide)])


@pytest.mark.parametrize("rows", [pa.float64(), pa.string(), pa.decimal128(5, 2)], ids=str)
def test_other_changes_of_a_column_are_refused_there_too(rows: pa.DataType) -> None:
    with pytest.raises(WrongTable, match="cast it, or give it another name"):
        joined_schema(pa.schema([("x", pa.int32())]), pa.schema([("x", rows)]), widens=True)
