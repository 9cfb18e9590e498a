"""Rows of a lake table as records again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.lake.rows import TIMESTAMP
from headrace.records._messages import Message


def messages(rows: pa.Table, topic: str) -> Iterator[Message]:
    index = rows.column_names.index(TIMESTAMP)
    micros = rows.set_column(index, TIMESTAMP, rows[TIMESTAMP].cast(pa.int64()))
    for row in micros.to_pylist():
        yield Message(
            topic,
            row["_partition"],
            row["_offset"],
            -1 if row[TIMESTAMP] is None else row[TIMESTAMP] // 1000,
            row["_timestampType"],
            row["_key"],
            row["_value"],
            tuple((header["key"], header["value"]) for header in row["_headers"] or ()),
        )
