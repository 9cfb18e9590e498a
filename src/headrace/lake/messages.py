"""Rows of a lake table as records again, and rows with typed columns as JSON."""

from __future__ import annotations

import base64
import json
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


def json_rows(rows: pa.Table) -> Iterator[bytes]:
    """Yield each row as a JSON object by the names of the columns. Nulls are left out; bytes that are not
    text are base64.
    """
    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):  # Python has no year 10000
            text = rows[field.name].cast(pa.timestamp(field.type.unit)).cast(pa.string())
            rows = rows.set_column(index, field.name, text)
    for row in rows.to_pylist():
        shown = {name: value for name, value in row.items() if value is not None}
        yield json.dumps(shown, default=_json_value, ensure_ascii=False).encode()


def _json_value(value: object) -> object:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
