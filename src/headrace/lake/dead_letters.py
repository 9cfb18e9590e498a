"""The table of dead letters: records that cannot be rows of a table with typed columns, and why.

It has a ledger of its own, and decides. A copier that finds dead letters commits them here first, under the
ledger, and then the rows of the same range to the other table; where this ledger is ahead, after a kill or
because another copier was quicker, what is a dead letter is read from here instead of being decided again. So
each record is in exactly one of the two tables, also if a registry would give another answer now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.errors import WrongTable
from headrace.lake.files import Piece, WrittenFile, write_span
from headrace.lake.formats import table_at
from headrace.lake.reading import read_rows
from headrace.lake.rows import DEAD_SCHEMA, OFFSET, REASON, check_columns, fitted
from headrace.lake.table import DEAD_LETTERS, IS_DEAD, LakeTable, Snapshot
from headrace.machines.lake.ledger import Held, Ledger, Span, Verdict, uncovered

# A reason may quote the record; more of it helps nobody.
REASON_CHARACTERS_MAX = 1_000


def dead_rows(raw: pa.Table, reasons: dict[int, str]) -> pa.Table:
    """Return the records that have a reason, as rows of the table of dead letters."""
    rows = raw.filter(pc.is_in(raw[OFFSET], pa.array(list(reasons), pa.int64())))
    texts = [reasons[offset][:REASON_CHARACTERS_MAX] for offset in rows[OFFSET].to_pylist()]
    return rows.append_column(DEAD_SCHEMA.field(REASON), pa.array(texts, pa.string()))


class DeadLetterTable:
    """The dead letters of one table, during one step of a copier."""

    def __init__(self, lake: LakeTable) -> None:
        self.lake = lake
        self._snapshot: Snapshot | None = None
        self._files: list[WrittenFile] = []

    def begin(self) -> None:
        """Begin a step: read the ledger, by which `held` and `commit` go."""
        self._snapshot = self.lake.load()
        check_columns(self._snapshot.schema, self.lake.path, DEAD_SCHEMA)
        self._files = []

    @property
    def snapshot(self) -> Snapshot:
        assert self._snapshot is not None, "a step begins with begin()"
        return self._snapshot

    def held(self, span: Span) -> tuple[Span, pa.Table]:
        """Return the part of a range that is decided already, and its dead letters."""
        held = self.snapshot.ledger.get(span.partition, Held(span.start, span.start))
        start = min(max(span.start, held.start), span.end)
        part = Span(span.partition, start, max(start, min(span.end, held.next)))
        tables = [
            table.select(DEAD_SCHEMA.names)
            for table in read_rows(
                self.lake.path, self.snapshot, partitions=[part.partition], start=part.start, end=part.end
            )
        ]
        return part, pa.concat_tables(tables) if tables else DEAD_SCHEMA.empty_table()

    def write(self, span: Span, rows: list[pa.Table]) -> None:
        """Write dead letters of a range that is not decided yet; `commit` adds them."""
        pieces = [
            Piece(table[OFFSET][0].as_py(), fitted(table, self.snapshot.schema))
            for table in rows
            if table.num_rows
        ]
        if pieces:
            snapshot = self.snapshot
            schema = pieces[0].rows.schema
            self._files += write_span(self.lake.path, schema, snapshot.topic_id, span, pieces)

    def commit(self, ledger: Ledger, spans: Iterable[Span]) -> bool:
        """Decide these ranges, beside those that the other table has; False if another copier was quicker.

        The other table has no dead letters outside this ledger, so what it holds is decided too.
        """
        first: dict[int, Span] = {}
        second: dict[int, Span] = {}  # of a range that this ledger has in its middle
        for span in uncovered(self.snapshot.ledger, ledger, spans):
            (second if span.partition in first else first)[span.partition] = span
        for todo in (first, second):
            if not todo:
                continue
            files = [file for file in self._files if all(_contains(todo, span) for span in file.spans)]
            verdict, self._snapshot = self.lake.commit(self.snapshot, files, todo.values())
            if verdict is not Verdict.FITS:
                return False
        return True


def _contains(spans: Mapping[int, Span], part: Span) -> bool:
    span = spans.get(part.partition)
    return span is not None and span.start <= part.start and part.end <= span.end


def dead_letters_of(lake: LakeTable, snapshot: Snapshot) -> DeadLetterTable | None:
    if snapshot.dead_letters is None:
        return None
    path = Path(os.path.normpath(lake.path / snapshot.dead_letters))
    return DeadLetterTable(table_at(path, lake.store.format))


def name_dead_letters(lake: LakeTable, snapshot: Snapshot, path: Path) -> Snapshot:
    """Make the table of dead letters at this path, and write its place into the properties of the other."""
    relative = os.path.relpath(path.absolute(), lake.path.absolute())
    if snapshot.dead_letters == relative:
        return snapshot
    if snapshot.dead_letters is not None:
        raise WrongTable(
            f"table {lake.path} has its dead letters at {snapshot.dead_letters}, not {relative}: leave the "
            "path out"
        )
    if path.absolute() == lake.path.absolute():
        raise WrongTable(f"the dead letters of table {lake.path} need a directory of their own")
    dead = table_at(path, lake.store.format)
    if not dead.exists():
        dead.create(snapshot.topic, snapshot.topic_id, "", DEAD_SCHEMA, {IS_DEAD: "true"})
    found = dead.load()
    if not found.is_dead_letters or found.topic_id != snapshot.topic_id or found.ledger:
        raise WrongTable(f"{path} is another table: name a directory that is new")
    return lake.set_properties({DEAD_LETTERS: relative})
