"""Bounds of a file's columns, which the table's log has, so that readers can skip the file."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.rows import OFFSET, PARTITION, TIMESTAMP


class FileStats(NamedTuple):
    """Of the columns that have an order; moments are microseconds since 1970."""

    row_count: int
    null_counts: dict[str, int]
    least: dict[str, int]  # of columns that are not all null
    most: dict[str, int]
    moments: frozenset[str] = frozenset()  # columns that are timestamps


class Statistics:
    """Adds up while a file is written."""

    _COLUMNS = (PARTITION, OFFSET, TIMESTAMP)

    def __init__(self) -> None:
        self._rows = 0
        self._nulls: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._moments: set[str] = set()

    def add(self, rows: pa.Table) -> None:
        self._rows += rows.num_rows
        for name in self._COLUMNS:
            if name not in rows.column_names or not _has_order(rows.schema.field(name).type):
                continue  # a table of results may have any columns
            if pa.types.is_timestamp(rows.schema.field(name).type):
                self._moments.add(name)
            column = rows[name].cast(pa.int64())
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            found = pc.min_max(column).as_py()
            if found["min"] is not None:
                self._least[name] = min(self._least.get(name, found["min"]), found["min"])
                self._most[name] = max(self._most.get(name, found["max"]), found["max"])

    def result(self) -> FileStats:
        return FileStats(self._rows, self._nulls, self._least, self._most, frozenset(self._moments))


def _has_order(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"))
