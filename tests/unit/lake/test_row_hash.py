"""The hash of rows: every change shows, and how they are stored does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake.row_hash import added_up, row_hashes


def hash_of(values: list[Any], kind: pa.DataType, name: str = "x") -> list[int]:
    return list(row_hashes(pa.table({name: pa.array(values, kind)})).tolist())


def plain_hash(data: bytes) -> int:
    """The hash of a table with the one column "x" and this value, computed byte by byte."""
    mask = (1 << 64) - 1

    def mix(number: int) -> int:
        number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & mask
        number = (number ^ number >> 27) * 0x94D049BB133111EB & mask
        return number ^ number >> 31

    from hashlib import blake2b

    seed = int.from_bytes(blake2b(b"x", digest_size=8).digest(), "big")
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    total = sum(word * pow(0x9E3779B97F4A7C15, at, 1 << 64) for at, word in enumerate(words))
    return mix(mix(mix(total + len(data) & mask) + seed & mask))


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 5))
def test_bytes_are_hashed_as_the_plain_way_hashes_them(values: list[bytes], skipped: int) -> None:
    table = pa.table({"x": pa.array(values, pa.binary())}).slice(skipped)
    assert row_hashes(table).tolist() == [plain_hash(value) for value in values[skipped:]]


def test_long_values_and_many_rows_are_hashed_in_pieces() -> None:
    values = [bytes([number % 251]) * (number % 90) for number in range(5_000)]
    values[3] = bytes(range(256)) * 1_000
    values[-1] = b"z" * 70_000
    assert hash_of(values, pa.binary()) == [plain_hash(value) for value in values]


CHANGES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), 1, 2),
    (pa.int64(), 0, -1),
    (pa.float64(), 1.0, 1.5),
    (pa.bool_(), True, False),
    (pa.string(), "a", "b"),
    (pa.string(), "", "\0"),
    (pa.binary(), b"ab", b"ba"),
    (pa.binary(), b"12345678abcdefgh", b"abcdefgh12345678"),
    (
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    ),
    (pa.date32(), dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    (pa.time64("us"), dt.time(1), dt.time(2)),
    (pa.decimal128(9, 2), Decimal("1.00"), Decimal("1.01")),
    (pa.list_(pa.int32()), [1, 2], [2, 1]),
    (pa.list_(pa.int32()), [], [None]),
    (pa.list_(pa.int32()), [None, 1], [1, None]),
    (pa.list_(pa.string()), ["ab", "c"], ["a", "bc"]),
    (pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"a": 1, "b": None}, {"a": None, "b": 1}),
    (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 2)]),
    (pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), [{"key": "k", "value": b"v"}], []),
]


@pytest.mark.parametrize(("kind", "one", "other"), CHANGES, ids=str)
def test_every_change_of_a_value_changes_the_hash(kind: pa.DataType, one: Any, other: Any) -> None:
    hashes = hash_of([one, other, None, one], kind)
    assert len(set(hashes)) == 3
    assert hashes[0] == hashes[3]


@pytest.mark.parametrize(("kind", "one", "other"), CHANGES, ids=str)
def test_a_part_of_a_column_has_the_same_hashes(kind: pa.DataType, one: Any, other: Any) -> None:
    table = pa.table({"x": pa.array([one, None, other, one, other] * 3, kind)})
    whole = row_hashes(table).tolist()
    assert row_hashes(table.slice(4, 7)).tolist() == whole[4:11]
    pieces = pa.concat_tables([table.slice(0, 5), table.slice(5)])
    assert row_hashes(pieces).tolist() == whole


def test_a_value_in_another_column_is_another_row() -> None:
    assert hash_of([1], pa.int64(), "a") != hash_of([1], pa.int64(), "b")
    swapped = pa.table({"a": [1, 2], "b": [2, 1]})
    assert len(set(row_hashes(swapped).tolist())) == 2


def test_wider_and_more_columns_do_not_change_the_hash() -> None:
    assert hash_of([1, -7], pa.int32()) == hash_of([1, -7], pa.int64())
    assert hash_of([1.5, None], pa.float32()) == hash_of([1.5, None], pa.float64())
    assert hash_of(["é"], pa.string()) == hash_of(["é"], pa.large_string())
    table = pa.table({"x": [1, 2]})
    wider = table.append_column("new", pa.nulls(2, pa.string()))
    assert row_hashes(wider).tolist() == row_hashes(table).tolist()
    reordered = pa.table({"b": ["u"], "a": [1]})
    assert row_hashes(reordered).tolist() == row_hashes(pa.table({"a": [1], "b": ["u"]})).tolist()


def test_dictionaries_and_times_are_what_they_stand_for() -> None:
    column = pa.array(["a", "b", "a"])
    assert row_hashes(pa.table({"x": column.dictionary_encode()})).tolist() == hash_of(
        ["a", "b", "a"], pa.string()
    )
    moment = dt.datetime(2026, 1, 1, 1, 2, 3, 4000, tzinfo=dt.UTC)
    assert hash_of([moment], pa.timestamp("ms", "UTC")) == hash_of([moment], pa.timestamp("us", "UTC"))


def test_sums_wrap_at_64_bits() -> None:
    assert added_up(np.array([(1 << 64) - 1, 2], np.uint64)) == 1
    assert added_up(np.zeros(0, np.uint64)) == 0
    assert row_hashes(pa.table({"x": pa.array([], pa.int64())})).tolist() == []
