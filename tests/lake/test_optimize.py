"""Small files are joined beside copiers; no row is lost, and the proofs add up."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.lake.errors import Damaged
from headrace.lake.files import WrittenFile, read_proof
from headrace.lake.optimizing import Optimized, Optimizer
from headrace.lake.table import Snapshot
from headrace.machines.lake.compaction import StoredFile
from lake.tables import Fill, Lake, all_rows


def test_small_files_become_one_for_each_partition(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 12)
    lake.copy(offsets_per_commit=3)
    assert len(lake.load().files) == 8
    ledger = lake.ledger
    done = Optimizer(lake.lake).compact()
    assert (done.files_before, done.files_after, done.compacted) == (8, 2, 8)
    assert lake.rows() == all_rows(12)
    assert lake.ledger == ledger
    report = lake.verify()
    assert report.findings == []
    assert (report.rows, report.compared, report.files) == (24, 24, 2)
    assert Optimizer(lake.lake).compact().compacted == 0
    fill(topic, 2, first=12)
    lake.copy()
    assert lake.rows() == all_rows(14)
    assert lake.verify().is_clean


def test_a_lost_range_stays_known(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 4, 1)
    lake.copy()
    fill(topic, 6, 1, first=4)
    lake.admin.delete_records({(topic, 0): 7})
    lake.copy(allows_loss=True)
    Optimizer(lake.lake).compact()
    report = lake.verify()
    assert report.findings == []
    assert (report.lost, report.rows) == (3, 7)


def test_compaction_beside_copiers_and_beside_another_compaction(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 20)
    lake.copy(offsets_per_commit=2)
    fill(topic, 10, first=20)
    failures: list[BaseException] = []

    def attempt(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    works = [
        Optimizer(lake.lake).compact,
        Optimizer(lake.lake).compact,
        lambda: lake.copy(offsets_per_commit=2),
    ]
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert lake.rows() == all_rows(30)
    assert lake.verify().is_clean


class Stored:
    """The files of a table, for a compaction that is done by hand."""

    def __init__(self, lake: Lake) -> None:
        self.snapshot = lake.load()
        self.files = sorted(
            (
                StoredFile(name, size, read_proof(lake.path / name))
                for name, size in self.snapshot.files.items()
            ),
            key=lambda each: each.proof.proofs,
        )


def test_of_two_compactions_of_the_same_files_one_is_made(lake: Lake, topic: str, fill: Fill) -> None:
    """Both have read the same snapshot. deltalake alone would take both, and double the rows."""
    fill(topic, 6, 1)
    lake.copy(offsets_per_commit=2)
    optimizer, stored = Optimizer(lake.lake), Stored(lake)
    one, other = (optimizer.join(stored.snapshot, stored.files) for _ in range(2))
    late = lake.load()
    assert optimizer.replace(stored.snapshot, stored.files, one)[0] is True
    assert optimizer.replace(late, stored.files, other)[0] is False
    assert lake.rows() == all_rows(6, 1)
    assert lake.verify().is_clean
    assert not (lake.path / other.name).exists()


class Forgetful(Optimizer):
    def join(self, snapshot: Snapshot, group: list[StoredFile]) -> WrittenFile:
        """Loses a row, and adds the proofs up all the same."""
        new = super().join(snapshot, group)
        path = self._lake.path / new.name
        rows = pq.read_table(path).slice(1)
        proof = pq.read_metadata(path).metadata
        with pq.ParquetWriter(path, rows.schema) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata(proof)
        return new._replace(size=path.stat().st_size)


def test_a_row_that_a_compaction_loses_is_found(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6, 1)
    lake.copy(offsets_per_commit=2)
    Forgetful(lake.lake).compact()
    assert lake.faults() == {"rows_missing"}


def test_damage_is_not_compacted_away(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6, 1)
    lake.copy(offsets_per_commit=3)
    path = lake.path / Stored(lake).files[0].name
    rows, footer = pq.read_table(path), pq.read_metadata(path).metadata
    with pq.ParquetWriter(path, rows.schema) as writer:
        writer.write_table(rows.slice(1))
        writer.add_key_value_metadata(footer)
    with pytest.raises(Damaged, match=path.name):
        Optimizer(lake.lake).compact()
    assert len(lake.load().files) == 2


def test_files_that_no_commit_names_are_removed_when_they_are_old(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 6, 1)
    lake.copy(offsets_per_commit=3)
    before = set(lake.load().files)
    for name in before:
        os.utime(lake.path / name, (1, 1))
    orphan, foreign = lake.path / "headrace-orphan.parquet", lake.path / "yours.parquet"
    for path in (orphan, foreign):
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    optimizer = Optimizer(lake.lake)
    done = optimizer.compact()
    optimizer.remove_unneeded(done)
    assert done.removed_files == 1  # the others were part of it until now: a query may read them
    assert not orphan.exists()
    assert all((lake.path / name).exists() for name in before)
    for name in before:
        os.utime(lake.path / name, (1, 1))
    again = Optimized()
    optimizer.remove_unneeded(again)
    assert again.removed_files == len(before)
    assert foreign.exists()
    assert lake.verify().is_clean
    assert {path.name for path in Path(lake.path).glob("headrace-*.parquet")} == set(lake.load().files)
