"""The files and the columns of any table, also of one without a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.files import ParquetFile, WrittenFile
from headrace.lake.formats import store_at
from headrace.lake.rows import fitted

_BATCH_ROWS = 1 << 16


def table_schema(path: Path) -> pa.Schema:
    return store_at(path).load().schema


def table_rows(path: Path) -> pa.Table:
    """Return all rows of the newest version."""
    version = store_at(path).load()
    tables = [rows for name in sorted(version.files) for rows in file_rows(path / name, version.schema)]
    return pa.concat_tables(tables) if tables else version.schema.empty_table()


def table_files(path: Path) -> list[str]:
    """Return the names of the files of the newest version."""
    return sorted(store_at(path).load().files)


def file_rows(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file with these columns; a column that the file lacks is null."""
    with pq.ParquetFile(path) as file:
        wanted = [name for name in file.schema_arrow.names if name in schema.names]
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
            yield fitted(pa.Table.from_batches([batch]), schema)


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
