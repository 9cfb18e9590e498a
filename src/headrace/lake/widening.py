"""Wider columns for a table of results: its files are written again with the wider types.

Delta's readers may expect that a file has the types of the table, so a bigint column must not have files with
int32. One commit replaces all files and changes the columns, so every reader sees either the old table or the
new one, with the same rows. A file with the old types that another writer adds meanwhile is replaced next.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.files import ParquetFile, WrittenFile
from headrace.lake.table_files import file_rows

log = logging.getLogger("headrace.lake")


def has_types(path: Path, schema: pa.Schema) -> bool:
    """Whether each column of a file has the type that the table has; a column may be missing."""
    found = pq.read_schema(path)
    return all(
        _is_alike(field.type, schema.field(field.name).type) for field in found if field.name in schema.names
    )


def _is_alike(file: pa.DataType, table: pa.DataType) -> bool:
    """As `==`, but a file's structure may lack fields."""
    if pa.types.is_struct(file) and pa.types.is_struct(table):
        return all(
            table.get_field_index(each.name) >= 0 and _is_alike(each.type, table.field(each.name).type)
            for each in file
        )
    if pa.types.is_list(file) and pa.types.is_list(table):
        return _is_alike(file.value_type, table.value_type)
    if pa.types.is_map(file) and pa.types.is_map(table):
        return _is_alike(file.key_type, table.key_type) and _is_alike(file.item_type, table.item_type)
    return bool(file == table)


def rewritten(directory: Path, name: str, schema: pa.Schema) -> WrittenFile:
    """Write the rows of a file to a new one with these columns."""
    file = ParquetFile(directory, schema, "")
    try:
        for rows in file_rows(directory / name, schema):
            file.add(rows)
    except BaseException:
        file.discard()
        raise
    return file.finish(())


def widen(table: DeltaTable, directory: Path, schema: pa.Schema) -> None:
    """Give the table these columns, which are as wide as its own or wider."""
    log.info("the files of %s are written again, because a column gets a wider type", directory)
    names = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    new = [rewritten(directory, name, schema) for name in names]
    table.create_write_transaction(_additions(new), "overwrite", Schema.from_arrow(schema))


def replace_narrow(table: DeltaTable, directory: Path) -> bool:
    """Replace files whose types are not those of the table; False if there are none."""
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
    return [AddAction(file.name, file.size, {}, now_ms, False, file.stats) for file in files]
