"""Tables that somebody else has made or changed: what still works, and what is refused with a reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace.lake.delta
import headrace.lake.files
import headrace.lake.iceberg
import headrace.lake.iceberg_io
from harness.outsider import IcebergOutsider, outsider, read_outside
from headrace.lake.errors import NotALakeTable, WrongTable
from headrace.lake.formats import table_at
from headrace.lake.table import LakeTable
from lake.tables import Fill, Lake, all_rows

REFUSED = {
    "delta": {
        "delta.setTransactionRetentionDuration": "interval 7 days",
        "delta.enableDeletionVectors": "true",
    },
    "iceberg": {"commit.retry.num-retries": "4"},
}


def test_files_and_commit_are_on_disk_before_the_group_is_told(
    lake: Lake, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    for module in (headrace.lake.files, headrace.lake.delta, headrace.lake.iceberg, headrace.lake.iceberg_io):
        monkeypatch.setattr(module, "sync", lambda path: events.append(path.name))
    fill(topic, 2, 1)
    copier = lake.copier()
    monkeypatch.setattr(lake.topic, "commit", lambda group, offsets: events.append("group"))
    events.clear()
    copier.copy_available()
    (file,) = lake.load().files
    if lake.format == "delta":
        assert events == [file, "table", "00000000000000000001.json", "_delta_log", "group"]
    else:  # two lists of files and the metadata, then the catalog's journal
        assert events == [file, "table", "metadata", "metadata", "metadata", "table", "group"]


def test_a_table_whose_ledger_or_rows_could_vanish_is_refused(lake: Lake) -> None:
    for name, value in REFUSED[lake.format].items():
        lake.copy()
        outsider(lake.path).set_property(name, value)
        with pytest.raises(WrongTable, match=name):
            lake.copy()
        outsider(lake.path).set_property(name, "false" if lake.format == "delta" else "0")


def test_a_column_that_the_user_added_is_null_in_new_rows(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 3)
    lake.copy()
    outsider(lake.path).add_column("note")
    fill(topic, 3, first=3)
    lake.copy()
    assert lake.rows() == all_rows(6)
    assert read_outside(lake.path)["note"].null_count == 12
    assert lake.verify().is_clean


@pytest.mark.parametrize("format", ["delta"])
def test_a_column_that_somebody_removed_stops_the_copier(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 3)
    lake.copy()
    rows = read_outside(lake.path).drop_columns(["_key"])
    write_deltalake(str(lake.path), rows, mode="overwrite", schema_mode="overwrite")
    fill(topic, 1, first=3)
    with pytest.raises(WrongTable, match="column _key is missing"):
        lake.copy()


@pytest.mark.parametrize("format", ["iceberg"])
def test_a_column_that_somebody_renamed_stops_the_copier(lake: Lake, topic: str, fill: Fill) -> None:
    """Files are read by names here, and by ids elsewhere: two readers would see two tables."""
    fill(topic, 3)
    lake.copy()
    IcebergOutsider(lake.path).rename_column("_key", "id")
    fill(topic, 1, first=3)
    with pytest.raises(WrongTable, match="column _key was renamed to id"):
        lake.copy()
    assert read_outside(lake.path).num_rows == 6


@pytest.mark.parametrize("format", ["iceberg"])
def test_a_table_that_was_moved_is_refused(lake: Lake, topic: str, fill: Fill, tmp_path: Path) -> None:
    fill(topic, 3)
    lake.copy()
    lake.path.rename(tmp_path / "elsewhere")
    with pytest.raises(NotALakeTable, match="or it was moved"):
        table_at(tmp_path / "elsewhere").load()
    (tmp_path / "deeper").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "deeper" / "table")
    with pytest.raises(WrongTable, match=f"lacks its metadata at {lake.path}.*cannot be moved"):
        table_at(tmp_path / "deeper" / "table").load()
    shutil.copytree(tmp_path / "deeper" / "table", lake.path)
    assert lake.verify().is_clean
    with pytest.raises(WrongTable, match=f"was made at {lake.path}.*move it back"):
        table_at(tmp_path / "deeper" / "table").load()


def test_what_is_not_a_lake_table_is_refused(tmp_path: Path) -> None:
    for format, name in (("delta", "Delta"), ("iceberg", "Iceberg")):
        with pytest.raises(NotALakeTable, match=f"there is no {name} table"):
            table_at(tmp_path / "nothing", format).load()
    write_deltalake(str(tmp_path / "other"), pa.table({"x": [1]}))
    with pytest.raises(NotALakeTable, match="was not made from a topic"):
        table_at(tmp_path / "other").load()
    with pytest.raises(WrongTable, match="is of format delta, not iceberg"):
        LakeTable(table_at(tmp_path / "other", "iceberg").store)
