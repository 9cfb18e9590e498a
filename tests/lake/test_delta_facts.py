"""What lake tables rely on in deltalake; if a new version differs, it shows here first."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = str(tmp_path / "table")
    DeltaTable.create(place, pa.schema([("x", pa.int64())]), configuration={"delta.checkpointInterval": "5"})
    return place


def commit(table: DeltaTable, name: str, app_id: str, version: int, *, more: str | None = None) -> None:
    rows = pa.table({"x": [version]})
    if more is not None:
        rows = rows.append_column(more, pa.array([1]))
    file = Path(table.table_uri.removeprefix("file://")) / name
    pq.write_table(rows, file)
    stats = json.dumps({"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}})
    table.create_write_transaction(
        [AddAction(name, file.stat().st_size, {}, 0, True, stats)],
        "append",
        table.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
    )


def test_a_repeated_version_is_accepted_after_a_load(path: str) -> None:
    """So the version must be compared before a commit: deltalake does not."""
    commit(DeltaTable(path), "a.parquet", "app", 1)
    commit(DeltaTable(path), "b.parquet", "app", 1)
    assert DeltaTable(path).count() == 2


def test_of_two_commits_of_one_application_on_one_snapshot_the_second_fails(path: str) -> None:
    one, other = DeltaTable(path), DeltaTable(path)
    commit(one, "a.parquet", "app", 1)
    with pytest.raises(CommitFailedError):
        commit(other, "b.parquet", "app", 2)
    assert DeltaTable(path).count() == 1


def test_commits_of_two_applications_on_one_snapshot_both_succeed(path: str) -> None:
    one, other = DeltaTable(path), DeltaTable(path)
    commit(one, "a.parquet", "app", 1)
    commit(other, "b.parquet", "other", 1)
    assert DeltaTable(path).count() == 2


def test_versions_may_fall_and_survive_checkpoints(path: str) -> None:
    commit(DeltaTable(path), "a.parquet", "app", 9)
    commit(DeltaTable(path), "b.parquet", "app", 4)
    for number in range(12):
        commit(DeltaTable(path), f"{number}.parquet", "other", number)
    log = Path(path) / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    assert checkpoints
    for old in log.glob("*.json"):
        if old.name < checkpoints[-1].name:
            old.unlink()
    assert DeltaTable(path).transaction_version("app") == 4


def test_a_column_that_the_table_lacks_is_accepted_and_hidden(path: str) -> None:
    """So the schemas of files must be compared before a commit: deltalake does not."""
    commit(DeltaTable(path), "a.parquet", "app", 1, more="hidden")
    assert DeltaTable(path).to_pyarrow_table().column_names == ["x"]


def test_commit_metadata_goes_with_old_log_files_and_versions_do_not(path: str) -> None:
    """So the ledger is not in the metadata of commits."""
    commit(DeltaTable(path), "a.parquet", "app", 7)
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.checkpointInterval": "2"})
    write_deltalake(
        path, pa.table({"x": [1]}), mode="append", commit_properties=CommitProperties({"ledger": "7"})
    )

    def told() -> list[str]:
        return [entry["ledger"] for entry in DeltaTable(path).history() if "ledger" in entry]

    assert told() == ["7"]
    for number in range(6):
        commit(DeltaTable(path), f"{number}.parquet", "other", number)
    log = Path(path) / "_delta_log"
    newest = max(log.glob("*.checkpoint.parquet"))
    for old in log.glob("*.json"):
        if old.name[:20] < newest.name[:20]:
            old.unlink()
    assert told() == []
    assert DeltaTable(path).transaction_version("app") == 7


def test_a_compaction_is_rebased_over_a_concurrent_append(path: str) -> None:
    for number in range(3):
        commit(DeltaTable(path), f"{number}.parquet", "app", number)
    early = DeltaTable(path)
    commit(DeltaTable(path), "late.parquet", "app", 3)
    done = early.optimize.compact()
    assert (done["numFilesRemoved"], done["numFilesAdded"]) == (3, 1)
    found = DeltaTable(path)
    assert sorted(found.to_pyarrow_table()["x"].to_pylist()) == [0, 1, 2, 3]
    assert found.transaction_version("app") == 3


def test_a_merge_carries_a_version(path: str) -> None:
    commit(DeltaTable(path), "a.parquet", "app", 1)
    (
        DeltaTable(path)
        .merge(
            pa.table({"x": [1, 5]}),
            "old.x = new.x",
            source_alias="new",
            target_alias="old",
            commit_properties=CommitProperties(app_transactions=[Transaction("app", 2)]),
        )
        .when_not_matched_insert_all()
        .execute()
    )
    found = DeltaTable(path)
    assert sorted(found.to_pyarrow_table()["x"].to_pylist()) == [1, 5]
    assert found.transaction_version("app") == 2
