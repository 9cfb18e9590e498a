"""Decoded values of every type become columns that a Delta table can have."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.value_types import Unstorable, stored, stored_schema, stored_type

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("kind", "value", "wanted", "kept"),
    [
        (pa.int8(), -3, pa.int64(), -3),
        (pa.uint32(), 1 << 31, pa.int64(), 1 << 31),
        (pa.float32(), 0.5, pa.float64(), 0.5),
        (pa.time32("ms"), time(0, 0, 1), pa.int64(), 1_000_000),
        (pa.duration("ms"), timedelta(seconds=1), pa.int64(), 1_000_000),
        (pa.timestamp("ms"), MOMENT, pa.string(), "2026-01-02T03:04:05.000000"),
        (
            pa.timestamp("ms", "UTC"),
            MOMENT.replace(tzinfo=UTC),
            pa.timestamp("us", "UTC"),
            MOMENT.replace(tzinfo=UTC),
        ),
        (pa.null(), None, pa.string(), None),
        (pa.date32(), date(2026, 1, 2), pa.date32(), date(2026, 1, 2)),
        (pa.decimal128(5, 2), Decimal("1.25"), pa.decimal128(5, 2), Decimal("1.25")),
        (pa.bool_(), True, pa.bool_(), True),
        (pa.binary(), b"x", pa.binary(), b"x"),
    ],
    ids=str,
)
def test_a_type_is_stored_as_one_that_tables_have(
    kind: pa.DataType, value: Any, wanted: pa.DataType, kept: Any
) -> None:
    assert stored_type(kind, "field") == wanted
    assert stored(pa.array([value, None], kind), wanted).to_pylist() == [kept, None]


def test_parts_of_structures_lists_and_maps_are_stored_alike() -> None:
    inner = pa.struct([("small", pa.int32()), ("at", pa.time64("us"))])
    kind = pa.struct([("list", pa.list_(inner)), ("map", pa.map_(pa.string(), pa.float32()))])
    wanted = stored_type(kind, "field")
    assert wanted == pa.struct(
        [
            (
                "list",
                pa.list_(pa.field("element", pa.struct([("small", pa.int64()), ("at", pa.int64())]))),
            ),
            ("map", pa.map_(pa.string(), pa.float64())),
        ]
    )
    rows: list[dict[str, Any] | None] = [
        {"list": [{"small": 1, "at": time(0, 0, 2)}, None], "map": [("a", 0.5)]},
        None,
        {"list": None, "map": None},
        {"list": [], "map": []},
        {"list": [{"small": 2, "at": None}], "map": [("b", None), ("c", 1.5)]},
    ]
    kept: list[dict[str, Any] | None] = [
        {"list": [{"small": 1, "at": 2_000_000}, None], "map": [("a", 0.5)]},
        None,
        {"list": None, "map": None},
        {"list": [], "map": []},
        {"list": [{"small": 2, "at": None}], "map": [("b", None), ("c", 1.5)]},
    ]
    column = pa.array(rows, kind)
    assert stored(column, wanted).to_pylist() == kept
    assert stored(column.slice(2), wanted).to_pylist() == kept[2:]
    assert stored(column.slice(0, 0), wanted).to_pylist() == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([("_Offset", pa.int64())], "the name of another column, _offset"),
        ([("a", pa.int64()), ("A", pa.int64())], "the name of another column, a"),
        ([("a b", pa.int64())], "a name that a column cannot have"),
        ([("", pa.int64())], "a name that a column cannot have"),
        ([("a", pa.uint64())], "a is of type uint64"),
        ([("a", pa.struct([]))], "a is a structure without fields"),
        ([("a", pa.struct([("b", pa.month_day_nano_interval())]))], "a.b is of type"),
    ],
)
def test_what_a_table_cannot_have_is_refused(fields: list[tuple[str, pa.DataType]], why: str) -> None:
    with pytest.raises(Unstorable, match=why):
        stored_schema(pa.struct(fields), RAW_SCHEMA)
