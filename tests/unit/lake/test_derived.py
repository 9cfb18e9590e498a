"""Tables of results: each batch once, whatever is repeated, and columns that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from harness.failing_commits import LOST_ANSWERS, failing_commits
from harness.outsider import read_outside
from headrace.lake import delta
from headrace.lake.delta_widening import widen
from headrace.lake.derived import DerivedTable
from headrace.lake.errors import WrongTable
from headrace.lake.formats import store_at
from headrace.lake.store import Change, Version


def append(table: DerivedTable, rows: dict[str, Any], version: int, app_id: str | None = "app") -> bool:
    found = pa.table(rows)
    schema = table.prepare(found.schema)
    return table.commit(table.write(schema, iter(found.to_batches())), schema, app_id, version)


def values(table: DerivedTable, column: str = "x") -> list[Any]:
    found: list[Any] = read_outside(table.path)[column].to_pylist()
    return sorted(found, key=lambda value: (value is None, value))


@pytest.fixture
def table(tmp_path: Path, format: str) -> DerivedTable:
    return DerivedTable(tmp_path / "table", format)


def test_a_batch_that_is_repeated_is_added_once(table: DerivedTable) -> None:
    assert append(table, {"x": [1, 2]}, 0) is True
    assert append(table, {"x": [1, 2]}, 0) is False
    assert append(table, {"x": [3]}, 1) is True
    assert append(table, {"x": [1, 2]}, 0) is False
    assert append(table, {"x": [1]}, 0, "another") is True
    assert values(table) == [1, 1, 2, 3]
    named = {path.name for path in table.path.glob("*.parquet")}
    assert len(named) == 3  # files of repeated batches are removed


def test_without_a_number_every_batch_is_added(table: DerivedTable) -> None:
    append(table, {"x": [1]}, 0, None)
    append(table, {"x": [1]}, 0, None)
    assert values(table) == [1, 1]


def test_an_empty_batch_moves_the_number(table: DerivedTable) -> None:
    assert append(table, {"x": pa.array([], pa.int64())}, 0) is True
    assert append(table, {"x": [1]}, 0) is False


@pytest.mark.parametrize("app_id", ["app", None])
def test_a_commit_whose_answer_was_lost_is_not_made_again(
    table: DerivedTable, app_id: str | None, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_commits(monkeypatch, format, LOST_ANSWERS[format], times=1, is_made=True)
    assert append(table, {"x": [1, 2]}, 0, app_id) is True
    assert values(table) == [1, 2]


def test_two_writers_of_the_same_batch_add_it_once(
    table: DerivedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one commits on a snapshot that does not know the first one's commit."""
    table.prepare(pa.schema([("x", pa.int64())]))
    kind = type(store_at(table.path).load())
    commit = kind.commit

    def overtaken(self: Version, change: Change) -> None:
        monkeypatch.setattr(kind, "commit", commit)
        append(DerivedTable(table.path), {"x": [1]}, 0)
        commit(self, change)

    monkeypatch.setattr(kind, "commit", overtaken)
    assert append(table, {"x": [1]}, 0) is False
    assert values(table) == [1]


def test_columns_are_added_and_missing_ones_are_null(table: DerivedTable) -> None:
    append(table, {"x": [1]}, 0)
    append(table, {"x": [2], "y": ["new"]}, 1)
    append(table, {"y": ["only"]}, 2)
    assert values(table) == [1, 2, None]
    assert values(table, "y") == ["new", "only", None]


def test_a_writer_that_knows_an_older_schema_still_fits(table: DerivedTable) -> None:
    old = pa.table({"x": [1]})
    schema = table.prepare(old.schema)
    files = table.write(schema, iter(old.to_batches()))
    append(table, {"x": [2], "y": ["new"]}, 0, "another")
    assert table.commit(files, schema, "app", 0) is True
    assert values(table) == [1, 2]


def test_narrower_rows_are_widened_and_others_are_refused(table: DerivedTable) -> None:
    append(table, {"x": [1 << 40]}, 0)
    assert append(table, {"x": pa.array([7], pa.int32())}, 1)
    assert values(table) == [7, 1 << 40]
    with pytest.raises(WrongTable, match="column x"):
        append(table, {"x": ["text"]}, 2)


def narrow(*numbers: int) -> dict[str, Any]:
    inner = pa.struct([("n", pa.int32()), ("f", pa.float32())])
    return {
        "x": pa.array(numbers, pa.int32()),
        "s": pa.array([{"n": each, "f": 0.5} for each in numbers], inner),
    }


def wide(*numbers: int) -> dict[str, Any]:
    inner = pa.struct([("n", pa.int64()), ("f", pa.float64()), ("new", pa.string())])
    return {
        "x": pa.array(numbers, pa.int64()),
        "s": pa.array([{"n": each, "f": 0.1, "new": "y"} for each in numbers], inner),
    }


# Readers of Iceberg find an int in a file of a bigint column; those of Delta may not.
TYPES = {"delta": {"int64"}, "iceberg": {"int32", "int64"}}


def types_of_files(table: DerivedTable) -> set[str]:
    found = store_at(table.path).load().files
    return {str(pq.read_schema(table.path / name).field("x").type) for name in found}


def test_a_column_gets_wider(table: DerivedTable, format: str) -> None:
    append(table, narrow(1), 0)
    append(table, narrow(2), 1)
    assert append(table, wide(1 << 40), 2) is True
    assert append(table, narrow(2), 1) is False  # the numbers of batches are kept
    assert append(table, narrow(3), 3) is True
    assert values(table) == [1, 2, 3, 1 << 40]
    found = read_outside(table.path)
    assert found.schema.field("x").type == pa.int64()
    assert {row["s"]["n"]: (row["s"]["f"], row["s"]["new"]) for row in found.to_pylist()} == {
        1: (0.5, None),
        2: (0.5, None),
        3: (0.5, None),
        1 << 40: (0.1, "y"),
    }
    assert types_of_files(table) == TYPES[format]


def test_a_writer_that_was_overtaken_by_a_wider_one_writes_its_files_again(
    table: DerivedTable, format: str
) -> None:
    append(table, narrow(1), 0)
    rows = pa.table(narrow(2))
    schema = table.prepare(rows.schema)
    files = table.write(schema, iter(rows.to_batches()))
    append(table, wide(1 << 40), 0, "another")
    assert table.commit(files, schema, "app", 1) is True
    assert values(table) == [1, 2, 1 << 40]
    assert types_of_files(table) == TYPES[format]


def test_files_that_come_while_a_column_gets_wider_get_wider_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DerivedTable(tmp_path / "table", "delta")
    append(table, narrow(1), 0)

    def slow(loaded: DeltaTable, path: Path, schema: pa.Schema) -> None:
        append(DerivedTable(path), narrow(2), 0, "another")
        widen(loaded, path, schema)

    monkeypatch.setattr(delta, "widen", slow)
    assert append(table, wide(3), 1) is True
    assert values(table) == [1, 2, 3]
    assert types_of_files(table) == {"int64"}


def test_a_table_of_the_users_own_is_appended_to(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "own"), pa.table({"x": [1], "z": ["kept"]}))
    table = DerivedTable(tmp_path / "own")
    append(table, {"x": [2]}, 0)
    assert values(table) == [1, 2]
    assert values(table, "z") == ["kept", None]


@pytest.mark.parametrize("format", ["iceberg"])
@pytest.mark.parametrize("name", ["_partition", "_file"])
def test_names_that_iceberg_reserves_are_refused(table: DerivedTable, name: str) -> None:
    """Its readers in Spark would refuse the table."""
    with pytest.raises(WrongTable, match=f"column {name} has a name that Iceberg reserves"):
        append(table, {name: [1]}, 0)
    append(table, {"x": [1]}, 0)
    with pytest.raises(WrongTable, match=f"column {name} has a name that Iceberg reserves"):
        append(table, {"x": [1], name: [1]}, 1)


def test_columns_with_our_names_and_other_types_are_only_columns(table: DerivedTable) -> None:
    append(table, {"_timestamp": ["text"], "_offset": [1.5]}, 0)
    append(table, {"_timestamp": ["more"], "_offset": [2.5]}, 1)
    assert values(table, "_offset") == [1.5, 2.5]


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "own"), pa.table({"x": [1], "z": ["a"]}), partition_by=["z"])
    with pytest.raises(WrongTable, match="is partitioned"):
        append(DerivedTable(tmp_path / "own"), {"x": [2]}, 0)
