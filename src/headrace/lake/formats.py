"""Which format the table at a path has, and the code that knows it."""

from __future__ import annotations

from pathlib import Path

from headrace.base.extras import require
from headrace.lake.errors import WrongTable
from headrace.lake.store import Store
from headrace.lake.table import LakeTable

DELTA, ICEBERG = "delta", "iceberg"
FORMATS = (DELTA, ICEBERG)
CATALOG = "catalog.db"  # in the directory of an Iceberg table


def format_of(path: Path | str) -> str | None:
    """Return the format of the table at a path; None if there is no table."""
    if (Path(path) / CATALOG).exists():
        return ICEBERG
    return DELTA if (Path(path) / "_delta_log").exists() else None


def store_at(path: Path | str, format: str | None = None) -> Store:
    """Return the place of a table, which is of this format if it does not exist yet."""
    found = format_of(path)
    if found is not None and format is not None and found != format:
        raise WrongTable(f"the table at {path} is of format {found}, not {format}: use another path")
    if (found or format) == ICEBERG:
        require("pyiceberg", "an Iceberg table")
        from headrace.lake.iceberg import IcebergStore

        return IcebergStore(path)
    from headrace.lake.delta import DeltaStore

    return DeltaStore(path)


def table_at(path: Path | str, format: str | None = None) -> LakeTable:
    return LakeTable(store_at(path, format))
