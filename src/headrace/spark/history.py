"""`option("history", TABLE)`: a query reads a topic's lake table up to its ledger, then the topic.

The table has what the topic may have deleted. The seam is an exact offset of each partition: both have the
same records, so no record is missing or there twice. A query that goes on where the table ends does not open
it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.extras import MissingExtra, require
from headrace.base.secret import Secret
from headrace.client.admin.topics import TopicDescription
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import HEADERS
from headrace.spark.options import EARLIEST, Offsets, OffsetSpec, SourceOptions
from headrace.spark.ranges import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.lake.table import Snapshot

# Files of a batch query's task, together: about a second of work.
TASK_BYTES = 64 << 20


class Part(NamedTuple):
    """What one file has of one partition."""

    start: int
    end: int
    name: str
    size: int  # bytes of the file


class HistoryTask(NamedTuple):
    """A range that one task reads from the table."""

    range: Range
    table: str
    parts: tuple[Part, ...]  # in the order of offsets
    settings: dict[str, str | Secret]  # for a consumer, as those of other tasks

    def tables(self) -> Iterator[pa.Table]:
        """Yield the records by Spark's column names."""
        from headrace.lake.reading import span_rows
        from headrace.lake.rows import RAW_SCHEMA
        from headrace.machines.lake.ledger import Span

        (topic, partition), start, end = self.range
        for part in self.parts:
            span = Span(partition, max(start, part.start), min(end, part.end))
            for rows in span_rows(Path(self.table) / part.name, span, RAW_SCHEMA):
                yield _kafka_columns(rows, topic)


def _kafka_columns(rows: pa.Table, topic: str) -> pa.Table:
    import pyarrow as pa

    names = {
        "partition": "_partition",
        "offset": "_offset",
        "timestamp": "_timestamp",
        "timestampType": "_timestampType",
        "key": "_key",
        "value": "_value",
        HEADERS: "_headers",
    }
    columns = {name: rows[own] for name, own in names.items()}
    return pa.table({"topic": pa.repeat(pa.scalar(topic), rows.num_rows), **columns})


class History:
    """One version of the table, which is loaded when it is needed first."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.history is not None
        self._path = options.history
        self._made: Snapshot | None = None
        self._parts: dict[int, list[Part]] | None = None

    def _snapshot(self, topics: Mapping[str, TopicDescription]) -> Snapshot:
        if self._made is None:
            try:
                require("deltalake", 'option("history")')
            except MissingExtra as error:
                raise InvalidOption(f"{error}") from None
            from headrace.lake.formats import table_at

            self._made = _checked(table_at(self._path).load(), self._path, topics)
        return self._made

    def begin(self, offsets: Offsets, spec: OffsetSpec, topics: Mapping[str, TopicDescription]) -> Offsets:
        """Return the offsets at which a query starts: the table's, where it begins at the earliest one."""
        snapshot = self._snapshot(topics)
        found = dict(offsets.by_partition)
        for at, offset in found.items():
            wanted = spec.everywhere if spec.each is None else spec.each.by_partition.get(at)
            held = snapshot.ledger.get(at.partition)
            if wanted == EARLIEST and at.topic == snapshot.topic and held is not None:
                found[at] = min(offset, held.start)
        return Offsets(found, offsets.topic_ids, offsets.missing)

    def split(
        self,
        ranges: Iterable[Range],
        topics: Mapping[str, TopicDescription],
        settings: dict[str, str | Secret],
        *,
        bytes_max: int | None,
    ) -> tuple[list[HistoryTask], list[Range]]:
        """Return what the table has of these ranges, as tasks, and the rest.

        `bytes_max`: None for streams, which keep the order of a partition in one task.
        """
        snapshot = self._snapshot(topics)
        tasks: list[HistoryTask] = []
        rest: list[Range] = []
        for each in ranges:
            held = snapshot.ledger.get(each.partition.partition)
            if each.partition.topic != snapshot.topic or held is None:
                rest.append(each)
                continue
            start, end = max(each.start, held.start), min(each.end, held.next)
            if start >= end:
                rest.append(each)
                continue
            parts = self._files(snapshot).get(each.partition.partition, [])
            inside = [part for part in parts if part.start < end and start < part.end]
            tasks += self._tasks(Range(each.partition, start, end), inside, settings, bytes_max)
            before, after = Range(each.partition, each.start, start), Range(each.partition, end, each.end)
            rest += [part for part in (before, after) if part.size > 0]
        return tasks, rest

    def _files(self, snapshot: Snapshot) -> dict[int, list[Part]]:
        if self._parts is None:
            from headrace.lake.files import read_proof

            found: dict[int, list[Part]] = {}
            for name, size in snapshot.files.items():
                for proof in read_proof(Path(self._path) / name).proofs:
                    if proof.row_count:
                        _, start, end = proof.span
                        found.setdefault(proof.span.partition, []).append(Part(start, end, name, size))
            self._parts = {partition: sorted(parts) for partition, parts in found.items()}
        return self._parts

    def _tasks(
        self,
        whole: Range,
        parts: list[Part],
        settings: dict[str, str | Secret],
        bytes_max: int | None,
    ) -> list[HistoryTask]:
        groups: list[list[Part]] = []
        size = 0
        for part in parts:
            if not groups or (bytes_max is not None and size + part.size > bytes_max):
                groups.append([])
                size = 0
            groups[-1].append(part)
            size += part.size
        return [
            HistoryTask(_within(whole, group), str(self._path), tuple(group), settings) for group in groups
        ]


def _within(whole: Range, parts: list[Part]) -> Range:
    start, end = max(whole.start, parts[0].start), min(whole.end, parts[-1].end)
    return Range(whole.partition, start, end)


def _checked(snapshot: Snapshot, path: str, topics: Mapping[str, TopicDescription]) -> Snapshot:
    """Raise InvalidOption if the records of the table are not those of the topic."""
    topic = topics.get(snapshot.topic)
    if topic is None:
        raise InvalidOption(
            f"history={path}: the table is of topic {snapshot.topic!r}, which the query does not read"
        )
    if topic.topic_id != snapshot.topic_id:
        raise InvalidOption(
            f"history={path}: the table is of a topic {snapshot.topic!r} with id {snapshot.topic_id}, which "
            f"was deleted; the one that exists has id {topic.topic_id}. Read the table with headrace_lake"
        )
    if snapshot.is_upsert or snapshot.is_dead_letters:
        raise InvalidOption(f"history={path}: the table does not have all records of the topic")
    values = snapshot.values
    if values is not None and (not values.keeps_value or snapshot.dead_letters is not None):
        raise InvalidOption(
            f"history={path}: the table does not have the bytes of all values; make one without --values, or "
            "with --keep-values and without --dead-letters"
        )
    return snapshot
