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
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())])),
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
