"""Small files are joined: no row is lost, the proofs add up, and damage is not hidden."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.failing_commits import CONFLICTS, LOST_ANSWERS, failing_commits
from harness.lake_topic import TableOfTopic, TopicInMemory, all_rows
from headrace.lake.errors import Damaged
from headrace.lake.files import read_proof
from headrace.lake.optimizing import Optimized, Optimizer
from headrace.machines.lake.compaction import StoredFile


@pytest.fixture
def topic() -> TopicInMemory:
    return TopicInMemory()


@pytest.fixture
def table(tmp_path: Path, topic: TopicInMemory, format: str) -> TableOfTopic:
    """With four files of each partition."""
    topic.fill(8)
    table = TableOfTopic(tmp_path / "table", topic, format)
    table.copy(offsets_per_commit=2)
    return table


def stored(table: TableOfTopic) -> list[StoredFile]:
    found = table.load().files.items()
    files = [StoredFile(name, size, read_proof(table.path / name)) for name, size in found]
    return sorted(files, key=lambda each: each.proof.proofs)


def test_small_files_become_one_for_each_partition(table: TableOfTopic, topic: TopicInMemory) -> None:
    ledger = table.ledger
    commits: list[None] = []
    done = Optimizer(table.lake).compact(lambda: commits.append(None))
    assert (done.files_before, done.files_after, done.compacted, len(commits)) == (8, 2, 8, 2)
    assert done.written_bytes == sum(table.load().files.values())
    assert table.ledger == ledger
    assert table.rows() == all_rows(range(8))
    report = table.verify()
    assert (report.findings, report.files, report.compared) == ([], 2, 16)
    assert Optimizer(table.lake).compact().compacted == 0
    topic.fill(1)
    table.copy()
    assert table.rows() == all_rows(range(9))


def test_a_lost_range_stays_known(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.fill(6)
    topic.trim(0, 11)
    table.copy(allows_loss=True)
    Optimizer(table.lake).compact()
    report = table.verify()
    assert (report.findings, report.lost, report.rows) == ([], 3, 25)


def test_a_compaction_of_another_owner_wins_once(table: TableOfTopic) -> None:
    """Both have read the same snapshot. deltalake alone would take both, and double the rows."""
    optimizer, snapshot = Optimizer(table.lake), table.load()
    group = stored(table)[:4]
    one, other = (optimizer.join(snapshot, group) for _ in range(2))
    late = table.load()
    assert optimizer.replace(snapshot, group, one)[0] is True
    assert optimizer.replace(late, group, other)[0] is False
    assert table.rows() == all_rows(range(8))
    assert not (table.path / other.name).exists()
    assert table.verify().is_clean


@pytest.mark.parametrize("is_made", [True, False])
def test_a_failed_commit_is_looked_for_in_the_table(
    is_made: bool, format: str, table: TableOfTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = (LOST_ANSWERS if is_made else CONFLICTS)[format]
    raised = failing_commits(monkeypatch, format, error, times=1, is_made=is_made)
    done = Optimizer(table.lake).compact()
    assert (done.compacted, done.files_after, len(raised)) == (8, 2, 1)
    assert table.rows() == all_rows(range(8))
    assert table.verify().is_clean


def test_damage_is_not_compacted_away(table: TableOfTopic) -> None:
    path = table.path / stored(table)[0].name
    rows, footer = pq.read_table(path), pq.read_metadata(path).metadata
    with pq.ParquetWriter(path, rows.schema) as writer:
        writer.write_table(rows.slice(1))
        writer.add_key_value_metadata(footer)
    before = sorted(table.path.glob("*.parquet"))
    with pytest.raises(Damaged, match=f"file {path.name} of table .* does not agree with its proof"):
        Optimizer(table.lake).compact()
    assert sorted(table.path.glob("*.parquet")) == before


def test_files_of_other_programs_and_missing_files_are_left_alone(
    table: TableOfTopic, caplog: pytest.LogCaptureFixture
) -> None:
    missing, foreign = (table.path / each.name for each in stored(table)[:2])
    rows = pq.read_table(foreign).replace_schema_metadata(None)
    pq.write_table(rows, foreign)
    missing.unlink()
    done = Optimizer(table.lake).compact()
    assert (done.files_before, done.files_after, done.compacted) == (8, 4, 6)
    assert {missing.name, foreign.name} <= set(table.load().files)
    assert foreign.name in caplog.text
    assert missing.name in caplog.text


def test_only_old_files_that_no_commit_names_are_removed(table: TableOfTopic) -> None:
    before = set(table.load().files)
    orphan, foreign = table.path / "headrace-orphan.parquet", table.path / "yours.parquet"
    for path in (orphan, foreign):
        path.write_bytes(b"xy")
        os.utime(path, (1, 1))
    optimizer = Optimizer(table.lake)
    done = optimizer.compact()
    optimizer.remove_unneeded(done)
    assert (done.removed_files, done.removed_bytes) == (1, 2)  # a query may still read the others
    assert all((table.path / name).exists() for name in before)
    again = Optimized()
    optimizer.remove_unneeded(again, keep_s=-1)
    assert again.removed_files == len(before)
    assert not orphan.exists()
    assert foreign.exists()
    assert table.verify().is_clean
