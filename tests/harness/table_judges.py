"""Readers of lake tables that judge each other: number and hash of all rows, by each of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from harness.outsider import read_outside
from headrace.lake.formats import store_at
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.table_files import table_rows


class Seen(NamedTuple):
    rows: int
    hash: int


def seen(table: pa.Table) -> Seen:
    """The order of the rows does not matter, nor how a reader stores them.

    Iceberg reserves one of our names, so that its readers have another one.
    """
    names = ["_partition" if name == "_topic_partition" else name for name in table.column_names]
    table = table.rename_columns(names)
    return Seen(table.num_rows, added_up(row_hashes(table)))


def by_headrace(path: Path) -> Seen:
    return seen(table_rows(path))


def by_library(path: Path) -> Seen:
    """deltalake's or pyiceberg's reader."""
    return seen(read_outside(path))


def by_duckdb(path: Path) -> Seen:
    store = store_at(path)
    function = {"delta": "delta_scan", "iceberg": "iceberg_scan"}[store.format]
    with duck() as connection:
        query = f"SELECT * FROM {function}('{store.load().location}')"
        return seen(connection.execute(query).to_arrow_table())


def duck() -> duckdb.DuckDBPyConnection:
    """A connection with the extensions from PyPI; nothing is fetched at run time."""
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg", "delta"):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert found is not None, f"pip install duckdb-extension-{name}"
        (file,) = Path(found.origin or "").parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection
