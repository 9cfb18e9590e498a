"""The files and the columns of any Delta table, for readers that need no ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headrace.lake.delta import refuse_properties
from headrace.lake.errors import NotALakeTable
from headrace.lake.rows import fitted

_BATCH_ROWS = 1 << 16


def _load(path: Path) -> DeltaTable:
    try:
        table = DeltaTable(str(path))
    except TableNotFoundError as error:
        raise NotALakeTable(f"there is no Delta table at {path}") from error
    refuse_properties(path, table.metadata().configuration)
    return table


def table_schema(path: Path) -> pa.Schema:
    return pa.schema(_load(path).schema().to_arrow())


def table_rows(path: Path) -> pa.Table:
    """Return all rows of the newest version."""
    return _load(path).to_pyarrow_table()


def table_files(path: Path) -> list[str]:
    """Return the names of the files of the newest version."""
    return sorted(pa.table(_load(path).get_add_actions(flatten=True))["path"].to_pylist())


def file_rows(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file with these columns; a column that the file lacks is null."""
    with pq.ParquetFile(path) as file:
        wanted = [name for name in file.schema_arrow.names if name in schema.names]
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
            yield fitted(pa.Table.from_batches([batch]), schema)
