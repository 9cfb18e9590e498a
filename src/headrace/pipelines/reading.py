"""Rows of a pipeline's tables and materialized views, read without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.catalog import Catalog
from headrace.pipelines.errors import ProjectError
from headrace.pipelines.project import find_project, load_project

if TYPE_CHECKING:
    import pyarrow as pa

FILE_LIST = "_spark_metadata"  # the files that finished micro-batches wrote; others are leftovers


def read_table(project: Path | str, name: str) -> pa.Table:
    """Return the rows of a table or materialized view, as of the last micro-batch or refresh.

    :param project: the project's directory, or its `spark-pipeline.yml`.
    :param name: the name of the table or view; ProjectError is raised if nothing has been written to it.
    """
    storage = load_project(find_project(Path(project).resolve())).storage
    path = Catalog(storage).rows(name)
    if path is None:
        raise ProjectError(f"{storage} has no rows of a table or view {name}")
    if (path / "_delta_log").is_dir():
        from headrace.lake.table_files import table_rows

        return table_rows(path)
    return _parquet_rows(path)


def _parquet_rows(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.dataset

    has_list = (path / FILE_LIST).is_dir()
    files = _listed(path) if has_list else [str(file) for file in sorted(path.glob("part-*"))]
    if not files:
        return pa.table({})
    rows = pyarrow.dataset.dataset(files, format="parquet").to_table()
    # Spark stores moments in a form without a time zone; they are UTC
    moment, stored = pa.timestamp("us", "UTC"), pa.timestamp("ns")
    fields = [each.with_type(moment) if each.type == stored else each for each in rows.schema]
    return rows.cast(pa.schema(fields))


def _listed(path: Path) -> list[str]:
    """The files of a table that a stream appends to; a `.compact` has those of all batches before it."""
    logs = [file for file in (path / FILE_LIST).iterdir() if not file.name.startswith(".")]
    batches = {int(file.name.partition(".")[0]): file for file in logs}
    found: list[str] = []
    for number in sorted(batches):
        if batches[number].suffix == ".compact":
            found.clear()
        entries = batches[number].read_text().splitlines()[1:]  # below the version of the format
        found += [str(path / json.loads(entry)["path"].rpartition("/")[2]) for entry in entries]
    return found
