"""Wider columns for a Delta table of results: its files are written again with the wider types.

Delta's readers may expect that a file has the types of the table, so a bigint column must not have files with
int32. One commit replaces all files and changes the columns, so every reader sees either the old table or the
new one, with the same rows. A file with the old types that another writer adds meanwhile is replaced next.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.delta_stats import delta_stats
from headrace.lake.files import WrittenFile
from headrace.lake.table_files import has_types, rewritten

# Each time another writer added files with the old types; one that knows the new ones comes to an end.
ROUNDS_MAX = 30

log = logging.getLogger("headrace.lake")


def widen(table: DeltaTable, directory: Path, schema: pa.Schema) -> None:
    """Give the table these columns, which are as wide as its own or wider."""
    log.info("the files of %s are written again, because a column gets a wider type", directory)
    names = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    new = [rewritten(directory, name, schema) for name in names]
    table.create_write_transaction(_additions(new), "overwrite", Schema.from_arrow(schema))


def replace_narrow_files(directory: Path) -> None:
    """Replace the files whose types are not those of the table."""
    for _ in range(ROUNDS_MAX):
        if not _replace_narrow(DeltaTable(str(directory)), directory):
            return
        log.info("another writer added files with the old types to %s", directory)


def _replace_narrow(table: DeltaTable, directory: Path) -> bool:
    schema = pa.schema(table.schema().to_arrow())
    actions = pa.table(table.get_add_actions(flatten=True))
    sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist()))
    narrow = [name for name in sizes if not has_types(directory / name, schema)]
    if not narrow:
        return False
    now_ms = time.time_ns() // 1_000_000
    new = [rewritten(directory, name, schema) for name in narrow]
    removals = [RemoveAction(name, False, now_ms, sizes[name]) for name in narrow]
    table.create_write_transaction([*removals, *_additions(new)], "append", table.schema())
    return True


def _additions(files: list[WrittenFile]) -> list[AddAction]:
    now_ms = time.time_ns() // 1_000_000
    return [AddAction(file.name, file.size, {}, now_ms, False, delta_stats(file.stats)) for file in files]
