"""A program that uses a lake table with the library of its format, and knows nothing of Headrace.

It reads what everybody reads, and does to a table what its user, or a fault, may do to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import StringType


def outsider(path: Path) -> DeltaOutsider | IcebergOutsider:
    return IcebergOutsider(path) if (path / "catalog.db").exists() else DeltaOutsider(path)


def read_outside(path: Path) -> pa.Table:
    """All rows, by the format's own reader."""
    return outsider(path).rows()


class DeltaOutsider:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def rows(self) -> pa.Table:
        return self.table.to_pyarrow_table()

    def commit(self, name: str | None, marks: Mapping[str, int]) -> None:
        """Add a file that is on disk, and set marks, without a look at those that are there."""
        table, added = self.table, []
        if name is not None:
            size = (self.path / name).stat().st_size
            added.append(AddAction(name, size, {}, 0, True, '{"numRecords": 4}'))
        properties = CommitProperties(app_transactions=[Transaction(*one) for one in marks.items()])
        table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)

    def delete(self, predicate: str) -> None:
        self.table.delete(predicate)

    def add_column(self, name: str) -> None:
        self.table.alter.add_columns([Field(name, PrimitiveType("string"))])

    def set_property(self, name: str, value: str) -> None:
        self.table.alter.set_table_properties({name: value}, raise_if_not_exists=False)


class IcebergOutsider:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def table(self) -> Table:
        catalog = SqlCatalog("headrace", uri=f"sqlite:///{self.path}/catalog.db")
        try:
            return catalog.load_table(("lake", self.path.name))
        finally:
            catalog.close()

    def rows(self) -> pa.Table:
        """By the names of Headrace; Iceberg reserves one of them."""
        rows = self.table.scan().to_arrow()
        return rows.rename_columns({"_topic_partition": "_partition"} if _is_of_topic(rows) else {})

    def commit(self, name: str | None, marks: Mapping[str, int]) -> None:
        table = self.table
        with table.transaction() as transaction:
            transaction.set_properties({key: str(number) for key, number in marks.items()})
            if name is not None:
                with transaction.update_snapshot().fast_append() as append:
                    append.append_data_file(self._data_file(name))
        _close(table)

    def _data_file(self, name: str) -> DataFile:
        path = self.path / name
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=pq.read_metadata(path).num_rows,
            file_size_in_bytes=path.stat().st_size,
            spec_id=0,
        )

    def delete(self, predicate: str) -> None:
        table = self.table
        table.delete(predicate.replace("_partition", "_topic_partition"))
        _close(table)

    def add_column(self, name: str) -> None:
        table = self.table
        with table.update_schema() as update:
            update.add_column(name, StringType())
        _close(table)

    def rename_column(self, name: str, new: str) -> None:
        table = self.table
        with table.update_schema() as update:
            update.rename_column(name, new)
        _close(table)

    def set_property(self, name: str, value: str) -> None:
        table = self.table
        with table.transaction() as transaction:
            transaction.set_properties({name: value})
        _close(table)


def _is_of_topic(rows: pa.Table) -> bool:
    return "_topic_partition" in rows.column_names


def _close(table: Table) -> None:
    assert isinstance(table.catalog, SqlCatalog)
    table.catalog.close()
