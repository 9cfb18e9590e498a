"""A table with the newest record of each key: upserts by offset, tombstones, and what `verify` finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.failing_commits import LOST_ANSWERS, failing_commits
from harness.lake_topic import TopicInMemory
from harness.outsider import outsider, read_outside
from headrace.lake import upserting
from headrace.lake.copying import Copied, Copier
from headrace.lake.enabling import enable
from headrace.lake.errors import BadRecord, Damaged, RecordsLost, WrongTable
from headrace.lake.formats import table_at
from headrace.lake.optimizing import Optimizer
from headrace.lake.reading import read_rows
from headrace.lake.report import Report
from headrace.lake.stitching import read_stitched
from headrace.lake.typed_rows import TypedRows, table_decoder
from headrace.lake.values import ValueFormat
from headrace.lake.verifying import verify
from headrace.machines.lake.ledger import Held

JSON = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})


class Upserted:
    def __init__(self, path: Path, format: str, values: ValueFormat | None = None) -> None:
        self.path = path
        self.memory = TopicInMemory(2)
        self.topic = self.memory.as_topic()
        self.lake = table_at(path, format)
        self.values = values

    def copier(self, **more: Any) -> Copier:
        snapshot = enable(self.lake, self.topic, upsert=True, values=self.values)
        decoder = table_decoder(snapshot, None)
        typed = None if decoder is None else TypedRows(self.lake, decoder, None)
        return Copier(self.lake, self.topic, typed=typed, **more)

    def copy(self, **more: Any) -> Copied:
        return self.copier(**more).copy_available()

    def rows(self, *columns: str) -> dict[bytes, Any]:
        found = read_outside(self.path).to_pylist()
        assert len({row["_key"] for row in found}) == len(found)
        return {row["_key"]: tuple(row[name] for name in columns or ("_offset", "_value")) for row in found}

    def verify(self, *, full: bool = True) -> Report:
        snapshot = self.lake.load()
        decoder = table_decoder(snapshot, None) if full else None
        return verify(self.path, snapshot, self.topic if full else None, decoder=decoder)

    def faults(self, *, full: bool = False) -> set[str]:
        return {str(found.fault) for found in self.verify(full=full).findings}

    def compact_topic(self) -> None:
        at = self.memory.partitions[0]
        last = {at.keys[offset]: offset for offset in at.records}
        at.records = {offset: at.records[offset] for offset in sorted(last.values())}


@pytest.fixture
def lake(tmp_path: Path, format: str) -> Upserted:
    return Upserted(tmp_path / "table", format)


def test_the_newest_record_of_each_key_is_a_row(lake: Upserted) -> None:
    send = lake.memory.send
    send(b"a1", b"a")
    send(b"b1", b"b")
    send(b"a2", b"a")
    assert lake.copy().rows == 2
    assert lake.rows() == {b"a": (2, b"a2"), b"b": (1, b"b1")}
    send(b"c1", b"c")
    send(None, b"b")  # a tombstone
    send(b"a3", b"a")
    send(None, b"never there")
    copied = lake.copy(offsets_per_commit=2)
    assert (copied.rows, copied.commits) == (2, 2)
    assert lake.rows() == {b"a": (5, b"a3"), b"c": (3, b"c1")}
    assert lake.lake.load().ledger[0] == Held(0, 7)
    assert lake.memory.commits[-1] == ("lake-clicks", {0: 7, 1: 0})
    assert lake.copy().commits == 0
    report = lake.verify()
    assert (report.findings, report.rows, report.compared) == ([], 2, 4)
    send(None, b"a")
    send(None, b"c")
    lake.copy()
    assert lake.rows() == {}
    assert lake.verify().findings == []


def test_a_key_belongs_to_its_partition(lake: Upserted) -> None:
    lake.memory.send(b"x", b"key-0")
    lake.memory.write(1, b"y")
    lake.copy()
    found = read_outside(lake.path).select(["_partition", "_value"]).to_pylist()
    assert sorted((row["_partition"], row["_value"]) for row in found) == [(0, b"x"), (1, b"y")]
    lake.memory.send(None, b"key-0")
    lake.copy()
    assert lake.rows() == {b"key-0": (0, b"y")}
    assert lake.verify().findings == []


def test_large_files_are_written_again_only_if_a_key_in_them_changed(
    lake: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "SMALL_BYTES", 0)
    lake.memory.send(b"a1", b"a")
    lake.copy()
    (first,) = lake.lake.load().files
    lake.memory.send(b"b1", b"b")
    lake.copy()
    assert first in lake.lake.load().files
    assert len(lake.lake.load().files) == 2
    lake.memory.send(b"a2", b"a")
    lake.copy()
    assert first not in lake.lake.load().files
    assert lake.rows() == {b"a": (2, b"a2"), b"b": (1, b"b1")}
    assert lake.verify().findings == []
    assert Optimizer(lake.lake).compact().compacted == 0


def test_long_ranges_are_reduced_and_files_have_a_size(
    lake: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "_FOLD_BYTES", 1)
    monkeypatch.setattr(upserting, "FILE_BYTES", 1)
    monkeypatch.setattr("headrace.lake.files.ROW_GROUP_ROWS", 1)
    for number in range(6):
        lake.memory.send(b"%d" % number, b"k%d" % (number % 4))
    lake.copy(offsets_per_commit=4)
    assert {key: offset for key, (offset, _) in lake.rows().items()} == {
        b"k0": 4,
        b"k1": 5,
        b"k2": 2,
        b"k3": 3,
    }
    assert len(lake.lake.load().files) > 1
    assert lake.verify().findings == []
    found = read_rows(lake.path, lake.lake.load())
    assert sorted(offset for rows in found for offset in rows["_offset"].to_pylist()) == [2, 3, 4, 5]


def test_what_a_compacted_topic_no_longer_has_is_no_fault(lake: Upserted) -> None:
    for number in range(4):
        lake.memory.send(b"%d" % number, b"k%d" % (number % 2))
    lake.copy()
    lake.memory.send(b"new", b"k0")  # not copied yet, but it has replaced the record at 2
    lake.compact_topic()
    report = lake.verify()
    assert (report.findings, report.compared, report.compacted) == ([], 1, 1)
    lake.memory.trim(0, 5)
    with pytest.raises(RecordsLost):
        lake.copy()
    assert lake.copy(allows_loss=True).rows == 0
    assert lake.lake.load().ledger[0] == Held(0, 5)
    assert lake.verify().findings == []  # the topic has nothing more to compare with


def test_two_copiers_do_not_overwrite_each_other(lake: Upserted) -> None:
    lake.memory.send(b"a1", b"a")
    lake.copy()
    lake.memory.send(b"a2", b"a")
    slow = lake.copier()
    write = slow._upserts.write

    def late(*given: Any) -> Any:
        files = write(*given)
        lake.copy()
        lake.memory.send(b"b1", b"b")
        return files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slow._upserts, "write", late)
        slow.copy_available()
    lake.copy()
    assert lake.rows() == {b"a": (1, b"a2"), b"b": (2, b"b1")}
    assert lake.verify().findings == []
    assert {path.name for path in lake.path.glob("*.parquet")} >= set(lake.lake.load().files)


def test_a_commit_whose_answer_was_lost_counts(lake: Upserted, format: str) -> None:
    lake.memory.send(b"a1", b"a")
    copier = lake.copier()
    with pytest.MonkeyPatch.context() as patch:
        failing_commits(patch, format, LOST_ANSWERS[format], times=1, is_made=True)
        assert copier.copy_available().rows == 1
    assert lake.rows() == {b"a": (0, b"a1")}
    assert lake.verify().findings == []


def test_fields_of_upserted_values_have_columns(tmp_path: Path, format: str) -> None:
    lake = Upserted(tmp_path / "table", format, ValueFormat("json", JSON))
    lake.memory.send(b'{"n": 1}', b"a")
    lake.memory.send(b'{"n": 2}', b"b")
    lake.memory.send(None, b"a")
    lake.copy()
    assert lake.rows("n") == {b"b": (2,)}
    assert lake.verify().findings == []
    lake.memory.send(b"garbage", b"b")
    with pytest.raises(BadRecord, match="offset 3"):
        lake.copy()


def test_what_upserts_cannot_be_is_refused(lake: Upserted, tmp_path: Path) -> None:
    lake.memory.send(b"a", b"a")
    lake.copy()
    with pytest.raises(WrongTable, match="older ones could bring back"):
        lake.copier().backfill()
    with pytest.raises(WrongTable, match="read one of the two"):
        list(read_stitched(lake.path, lake.lake.load(), lake.topic))
    with pytest.raises(WrongTable, match="no dead letters"):
        enable(lake.lake, lake.topic, upsert=True, dead_letters=tmp_path / "dead")
    enable(table_at(tmp_path / "raw"), lake.topic)
    with pytest.raises(WrongTable, match="a row for each record"):
        enable(table_at(tmp_path / "raw"), lake.topic, upsert=True)
    lake.memory.send(b"x", None)
    with pytest.raises(BadRecord, match="offset 1 of partition 0 has no key"):
        lake.copy()


# --- planted faults --------------------------------------------------------------------------------------


@pytest.fixture
def filled(lake: Upserted, monkeypatch: pytest.MonkeyPatch) -> Upserted:
    """Of two files."""
    monkeypatch.setattr(upserting, "SMALL_BYTES", 0)
    lake.memory.send(b"a1", b"a")
    lake.memory.send(b"b1", b"b")
    lake.copy()
    lake.memory.send(b"c1", b"c")
    lake.copy()
    assert lake.verify().is_clean
    return lake


def _first(lake: Upserted) -> Path:
    return next(path for path in lake.path.glob("*.parquet") if pq.read_metadata(path).num_rows == 2)


def _rewrite(path: Path, change: Any) -> None:
    table, footer = pq.read_table(path), pq.read_metadata(path).metadata
    pq.write_table(change(table).replace_schema_metadata(footer), path)


def test_a_file_that_is_gone_is_found(filled: Upserted) -> None:
    _first(filled).unlink()
    assert filled.faults() == {"file_missing", "rows_missing"}
    assert "lost_record" in filled.faults(full=True)


def test_a_commit_that_removes_a_file_is_found(filled: Upserted) -> None:
    outsider(filled.path).delete("_offset = 0")
    assert filled.faults() & {"no_proof", "rows_missing"}
    assert "lost_record" in filled.faults(full=True)


def test_a_row_that_is_changed_is_found(filled: Upserted) -> None:
    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index("_value")
        return table.set_column(at, "_value", pa.array([b"a1", b"other"], pa.binary()))

    _rewrite(_first(filled), change)
    assert {"rows_changed"} <= filled.faults()
    assert "record_differs" in filled.faults(full=True)
    filled.memory.send(b"a2", b"a")
    with pytest.raises(Damaged):
        filled.copy()


def test_a_key_that_is_there_twice_is_found(filled: Upserted) -> None:
    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index("_key")
        return table.set_column(at, "_key", pa.array([b"c", b"b"], pa.binary()))

    _rewrite(_first(filled), change)
    assert {"twice", "rows_changed"} <= filled.faults()


def test_rows_that_are_not_the_newest_or_deleted_are_found(filled: Upserted) -> None:
    """Of a topic whose records were changed below the ledger: as if the table had missed them."""
    at = filled.memory.partitions[0]
    at.keys[1] = b"a"  # a newer record of key a, and none of b
    assert filled.faults(full=True) == {"record_differs", "extra_row"}
    at.keys[1], at.records[1] = b"b", None
    assert filled.faults(full=True) == {"extra_row"}
