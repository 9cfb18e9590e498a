"""Files with records, for `seed`, `record` and `replay`.

A recording is a file of JSON lines in the format of `headrace consume --json`, with all fields of a record.
Seeds are simpler: lines of JSON, CSV, or Parquet if pyarrow is installed.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.base.extras import missing_text
from headrace.records._messages import Message
from headrace.records.json_lines import read_json_line, write_json_line
from headrace.testing.records import Record


class BadFixture(ValueError):
    """A file that cannot be read as records; the message says where and why."""


def write_recording(path: Path, records: Iterable[Record]) -> None:
    lines = [write_json_line(_as_found(record)) + b"\n" for record in records]
    path.write_bytes(b"".join(lines))


def _as_found(record: Record) -> Message:
    assert record.partition is not None
    assert record.timestamp_ms is not None
    return Message(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def recorded(path: Path, *, keep_partitions: bool) -> Iterator[Record]:
    for number, line in _lines(path):
        try:
            read = read_json_line(line)
        except ValueError as error:
            raise BadFixture(f"{path}, line {number}: {error}") from None
        partition = read.partition if keep_partitions else None
        yield Record(read.value, read.key, read.headers, partition, read.timestamp_ms)


def read_records(path: Path, key: str | None) -> Iterator[Record]:
    """The records of a file; its extension decides the format."""
    readers = {".jsonl": _json_lines, ".ndjson": _json_lines, ".csv": _csv_rows, ".parquet": _parquet_rows}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise BadFixture(f"{path}: unknown extension; use one of {', '.join(readers)}")
    for where, value in read(path):
        yield Record.of(value, key=None if key is None else _key_of(path, where, value, key))


def _key_of(path: Path, where: str, value: Any, key: str) -> Any:
    if not isinstance(value, dict) or key not in value:
        raise BadFixture(f"{path}, {where}: no field {key!r} for the record's key")
    return value[key]


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in _lines(path):
        try:
            yield f"line {number}", json.loads(line)
        except ValueError as error:
            raise BadFixture(f"{path}, line {number}: not JSON: {error}") from None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def _csv_rows(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            yield f"line {number}", row


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise BadFixture(f"{path}: {missing_text('pyarrow', 'reading Parquet')}") from None
    number = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                # dates, decimals and the like have no JSON of their own: they are told as text
                yield f"row {number}", json.loads(json.dumps(row, default=str))
