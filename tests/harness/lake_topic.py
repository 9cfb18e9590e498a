"""A topic in memory, in place of `LakeTopic`, and a table of it: what tests of lake tables need of a broker.

A test writes, aborts, trims and cuts the topic between two calls of the code under test, or inside a read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from harness.outsider import read_outside
from headrace.client.threads.range_reader import DataLost
from headrace.lake.copying import Copied, Copier
from headrace.lake.enabling import enable
from headrace.lake.formats import table_at
from headrace.lake.report import Report
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.table import Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.verifying import verify
from headrace.machines.lake.ledger import Held, Span
from headrace.machines.lake.plan import Log

FIRST_MS = 1_700_000_000_000


def rows(
    partition: int,
    values: Mapping[int, bytes | None],
    keys: Mapping[int, bytes | None] | None = None,
    headers: Mapping[int, list[dict[str, Any]]] | None = None,
) -> pa.Table:
    """Rows of these offsets; key, timestamp and header tell the offset, unless they are given."""
    offsets = sorted(values)
    keys, headers = keys or {}, headers or {}
    return pa.Table.from_pydict(
        {
            "_partition": [partition] * len(offsets),
            "_offset": offsets,
            "_timestamp": [(FIRST_MS + offset) * 1000 for offset in offsets],
            "_timestampType": [0] * len(offsets),
            "_key": [keys.get(offset, b"key-%d" % offset) for offset in offsets],
            "_value": [values[offset] for offset in offsets],
            "_headers": [
                headers.get(offset, [{"key": "number", "value": b"%d" % offset}]) for offset in offsets
            ],
        },
        schema=RAW_SCHEMA,
    )


@dataclass
class PartitionInMemory:
    start: int = 0
    end: int = 0
    records: dict[int, bytes | None] = field(default_factory=dict)
    aborted: dict[int, bytes | None] = field(default_factory=dict)
    keys: dict[int, bytes | None] = field(default_factory=dict)  # of records that have another than usual
    headers: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


class TopicInMemory:
    def __init__(self, partitions: int = 2, name: str = "clicks", identity: str = "id-of-clicks") -> None:
        self.name = name
        self.identity = identity
        self.partitions = [PartitionInMemory() for _ in range(partitions)]
        self.commits: list[tuple[str, dict[int, int]]] = []  # to groups
        self.cleanup_policy = "delete"
        self.failure: Exception | None = None  # raised by the next questions
        self.on_read: Callable[[Span], None] = lambda _: None

    # --- what a test does with it ------------------------------------------------------------------------

    def write(self, partition: int, *values: bytes | None) -> None:
        at = self.partitions[partition]
        for value in values:
            at.records[at.end] = value
            at.end += 1

    def send(
        self, value: bytes | None, key: bytes | None = b"k", headers: list[dict[str, Any]] | None = None
    ) -> None:
        """One record to partition 0."""
        at = self.partitions[0]
        at.keys[at.end], at.headers[at.end] = key, headers or []
        self.write(0, value)

    def fill(self, count: int) -> None:
        """So many records in each partition."""
        for number, at in enumerate(self.partitions):
            self.write(number, *(b"value-%d" % offset for offset in range(at.end, at.end + count)))

    def abort(self, partition: int, *values: bytes) -> None:
        """A transaction with these records, and the marker that aborts it."""
        at = self.partitions[partition]
        at.aborted.update(enumerate(values, at.end))
        at.end += len(values) + 1

    def trim(self, partition: int, start: int) -> None:
        self.partitions[partition].start = start

    def cut(self, partition: int, end: int) -> None:
        at = self.partitions[partition]
        at.end = end
        at.records = {offset: value for offset, value in at.records.items() if offset < end}

    def as_topic(self) -> LakeTopic:
        return cast(LakeTopic, self)

    # --- what the code under test asks -------------------------------------------------------------------

    def topic_id(self) -> str:
        return self.identity

    def logs(self, topic_id: str) -> dict[int, Log]:
        assert topic_id == self.identity
        if self.failure is not None:
            raise self.failure
        return {number: Log(at.start, at.end) for number, at in enumerate(self.partitions)}

    def read(
        self, topic_id: str, span: Span, *, isolation_level: str = "read_committed"
    ) -> Iterator[pa.Table]:
        """Two tables, and an empty one between them."""
        assert topic_id == self.identity
        self.on_read(span)
        at = self.partitions[span.partition]
        if span.start < at.start:
            raise DataLost(f"offset {span.start} was deleted")
        everything = at.records | (at.aborted if isolation_level == "read_uncommitted" else {})
        found = {offset: everything[offset] for offset in everything if span.start <= offset < span.end}
        table = rows(span.partition, found, at.keys, at.headers)
        yield table.slice(0, 1)
        yield table.slice(0, 0)
        yield table.slice(1)

    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    def config(self, key: str) -> str:
        return {"cleanup.policy": self.cleanup_policy}.get(key, "")

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        self.commits.append((group, dict(offsets)))


class TableOfTopic:
    """A topic and its table, as tests use them: copy, look, verify."""

    def __init__(self, path: Path, topic: TopicInMemory, format: str = "delta") -> None:
        self.path = path
        self.topic = topic
        self.lake = table_at(path, format)

    def copier(self, **more: Any) -> Copier:
        enable(self.lake, self.topic.as_topic())
        return Copier(self.lake, self.topic.as_topic(), **more)

    def copy(self, **more: Any) -> Copied:
        return self.copier(**more).copy_available()

    def load(self) -> Snapshot:
        return self.lake.load()

    @property
    def ledger(self) -> dict[int, Held]:
        return self.load().ledger

    def rows(self) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and value of every row, as any reader sees them."""
        found = read_outside(self.path).select(["_partition", "_offset", "_value"]).to_pylist()
        return sorted((row["_partition"], row["_offset"], row["_value"]) for row in found)

    def verify(self, *, full: bool = True) -> Report:
        return verify(self.path, self.load(), self.topic.as_topic() if full else None)

    def faults(self, *, full: bool = False) -> set[str]:
        return {str(found.fault) for found in self.verify(full=full).findings}


def all_rows(offsets: Iterable[int], partitions: int = 2) -> list[tuple[int, int, bytes | None]]:
    """What a table has of a topic that `fill` filled."""
    numbers = list(offsets)
    return [
        (partition, offset, b"value-%d" % offset) for partition in range(partitions) for offset in numbers
    ]
