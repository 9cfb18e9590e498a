"""Rows of a pipeline's tables and views, read without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headrace.pipelines import read_table
from headrace.pipelines.catalog import Catalog
from headrace.pipelines.errors import ProjectError

PROJECT = "name: p\nstorage: storage\nlibraries:\n  - glob: {include: flows/**}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "spark-pipeline.yml").write_text(PROJECT)
    return tmp_path


def test_a_delta_table(project: Path) -> None:
    path = Catalog(project / "storage").table("clicks")
    for number in (1, 2):
        write_deltalake(str(path), pa.table({"number": [number]}), mode="append")
    assert sorted(read_table(project, "clicks")["number"].to_pylist()) == [1, 2]


def test_a_view_has_the_rows_of_its_last_refresh(project: Path) -> None:
    catalog = Catalog(project / "storage")
    for number in (1, 2):
        place = catalog.next_view("counts")
        place.mkdir(parents=True)
        pq.write_table(pa.table({"number": [number]}), place / "part-0.parquet")
        (place / "_SUCCESS").touch()
        catalog.switch_view("counts")
    catalog.next_view("counts").mkdir(parents=True)  # a refresh that is not done
    assert read_table(project / "spark-pipeline.yml", "counts").to_pylist() == [{"number": 2}]


def test_files_of_a_stream_count_when_their_micro_batch_is_done(project: Path) -> None:
    path = Catalog(project / "storage").table("clicks")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = pa.table({"number": [7], "at": pa.array([at.replace(tzinfo=None)], pa.timestamp("ns"))})
    for name in ("a", "b", "c", "leftover"):
        pq.write_table(rows, path / f"part-{name}.parquet")
    (path / "_spark_metadata").mkdir()

    def note(batch: str, *names: str) -> None:
        entries = [json.dumps({"path": f"file:///elsewhere/part-{name}.parquet"}) for name in names]
        (path / "_spark_metadata" / batch).write_text("\n".join(["v1", *entries]))

    note("0", "a")
    note(".0.crc")
    assert read_table(project, "clicks").to_pylist() == [{"number": 7, "at": at}]
    note("1.compact", "a", "b")
    note("2", "c")
    assert len(read_table(project, "clicks")) == 3


def test_a_table_without_rows(project: Path) -> None:
    with pytest.raises(ProjectError, match="no rows of a table or view clicks"):
        read_table(project, "clicks")
    Catalog(project / "storage").table("clicks")
    assert read_table(project, "clicks").num_rows == 0
