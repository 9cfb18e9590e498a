"""A table that keeps its own ledger: which offsets of its topic it has, changed together with its rows.

A commit of rows also moves the ledger, and is made only if the ledger stands at the range's edge: load,
compare, commit. If another commit came between, or if the answer of one is lost, the table is loaded and
compared again. So however often a range is written, it is added once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.lake.errors import LakeError, NotALakeTable
from headrace.lake.files import WrittenFile, read_proof
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.schema import joined_schema
from headrace.lake.store import Change, Conflict, Store, StoreFailed, Version
from headrace.lake.values import ValueFormat, format_in
from headrace.machines.lake.ledger import (
    Held,
    Span,
    Verdict,
    advance,
    hash_key,
    judge_all,
    next_key,
    partitions_key,
    rows_key,
    start_key,
)
from headrace.machines.lake.proof import Totals

TOPIC, TOPIC_ID, GROUP = "headrace.topic", "headrace.topic.id", "headrace.group"
DEAD_LETTERS = "headrace.dead_letters"  # path of their table, relative to this one
IS_DEAD = "headrace.is_dead_letters"
IS_UPSERT = "headrace.is_upsert"
# Another owner's commits come between load and commit; each time, one of the two gets on.
CONFLICTS_MAX = 30

log = logging.getLogger("headrace.lake")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the table."""

    stored: Version
    topic: str
    topic_id: str
    group: str
    ledger: dict[int, Held]
    values: ValueFormat | None = None  # None: the rows have the values' bytes only
    dead_letters: str | None = None  # path of their table, relative to this one
    is_dead_letters: bool = False  # the rows are those that another table could not have
    totals: Totals | None = None  # of a table with the newest record of each key only

    @property
    def version(self) -> int:
        return self.stored.number

    @property
    def files(self) -> dict[str, int]:
        """Name → bytes."""
        return self.stored.files

    @property
    def is_upsert(self) -> bool:
        return self.totals is not None

    @property
    def own_schema(self) -> pa.Schema:
        """The columns that every row has."""
        return RAW_SCHEMA if self.values is None else self.values.own_schema

    @property
    def schema(self) -> pa.Schema:
        return self.stored.schema


class LakeTable:
    """The table of one topic, in a format."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def path(self) -> Path:
        return self.store.path

    def exists(self) -> bool:
        return self.store.exists()

    def create(
        self,
        topic: str,
        topic_id: str,
        group: str,
        schema: pa.Schema,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Create the table; if another owner was quicker, the table is that one's."""
        self.store.create(schema, {TOPIC: topic, TOPIC_ID: topic_id, GROUP: group, **(more or {})})

    def load(self) -> Snapshot:
        """Read the newest version; raise if it is not a table of ours, or has lost its promises."""
        version = self.store.load()
        properties = version.properties
        topic, topic_id = properties.get(TOPIC), properties.get(TOPIC_ID)
        if not topic or not topic_id:
            raise NotALakeTable(f"the table at {self.path} was not made from a topic by Headrace")
        ledger = {}
        for partition in range(version.mark(partitions_key(topic_id)) or 0):
            first, after = (version.mark(key(topic_id, partition)) for key in (start_key, next_key))
            if first is not None and after is not None:
                ledger[partition] = Held(first, after)
        is_upsert = properties.get(IS_UPSERT) == "true"
        return Snapshot(
            version,
            topic,
            topic_id,
            properties.get(GROUP) or "",
            ledger,
            format_in(properties),
            properties.get(DEAD_LETTERS) or None,
            properties.get(IS_DEAD) == "true",
            _totals(version, topic_id) if is_upsert else None,
        )

    def add_columns(self, wanted: pa.Schema) -> pa.Schema:
        """Add the columns that the table lacks, also inside structures; return its columns in their order."""
        for _ in range(CONFLICTS_MAX):
            snapshot = self.load()
            joined = joined_schema(snapshot.schema, wanted)  # another owner may have added the column too
            if joined == snapshot.schema:
                return snapshot.schema
            try:
                snapshot.stored.change_columns(joined)
            except Conflict as error:
                log.debug("adding columns to %s met another commit: %s", self.path, error)
            self.store.sync(snapshot.version, self.load().version)
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one")

    def set_properties(self, properties: Mapping[str, str]) -> Snapshot:
        for _ in range(CONFLICTS_MAX):
            before = self.load()
            try:
                before.stored.set_properties(properties)
            except Conflict as error:
                log.debug("changing properties of %s met another commit: %s", self.path, error)
                continue
            after = self.load()
            self.store.sync(before.version, after.version)
            return after
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one")

    def commit(
        self,
        snapshot: Snapshot,
        files: list[WrittenFile],
        spans: Iterable[Span],
        replaced: Collection[str] = (),
    ) -> tuple[Verdict, Snapshot]:
        """Add the files, if their ranges continue what the ledger says.

        FITS: they are in the table now. HELD, STALE: another owner has moved the ledger; nothing was added,
        and the files are removed. `replaced` are files of the table that these stand for, in a table with
        upserts.
        """
        spans = list(spans)
        failed: Conflict | StoreFailed | OSError | None = None
        before = snapshot.version
        for _ in range(CONFLICTS_MAX):
            verdict = judge_all(spans, snapshot.ledger)
            is_ours = bool(files) and all(file.name in snapshot.files for file in files)
            if verdict is Verdict.FITS and not all(name in snapshot.files for name in replaced):
                verdict = Verdict.STALE
            if verdict is not Verdict.FITS:
                self.store.sync(before, snapshot.version)
                if verdict is Verdict.HELD and is_ours:  # the commit was made, and only its answer failed
                    return Verdict.FITS, snapshot
                self.remove(files, snapshot)
                return verdict, snapshot
            if failed is not None and not isinstance(failed, Conflict):
                raise failed  # a full disk, a directory without permission
            try:
                snapshot.stored.commit(self._change(snapshot, files, spans, replaced))
                failed = None
            except (Conflict, StoreFailed, OSError) as error:
                log.debug("the commit to %s failed and is compared again: %s", self.path, error)
                failed = error
            snapshot = self.load()
            if failed is None:
                self.store.sync(before, snapshot.version)
                return Verdict.FITS, snapshot
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one: {failed}")

    def _change(
        self, snapshot: Snapshot, files: list[WrittenFile], spans: Iterable[Span], replaced: Collection[str]
    ) -> Change:
        topic_id = snapshot.topic_id
        changed = advance(snapshot.ledger, spans)
        marks: dict[str, int] = {}
        for partition, held in changed.items():
            marks[start_key(topic_id, partition)] = held.start
            marks[next_key(topic_id, partition)] = held.next
        count = 1 + max(changed, default=-1)
        if count > 1 + max(snapshot.ledger, default=-1):
            marks[partitions_key(topic_id)] = count
        if snapshot.totals is not None:
            removed = [read_proof(self.path / name) for name in replaced]
            totals = snapshot.totals.moved([file.proof for file in files], removed)
            marks |= {rows_key(topic_id): totals.row_count, hash_key(topic_id): totals.hash}
        return Change(files, replaced, marks)

    def remove(self, files: Iterable[WrittenFile], snapshot: Snapshot) -> None:
        for file in files:
            if file.name not in snapshot.files:
                (self.path / file.name).unlink(missing_ok=True)


def _totals(version: Version, topic_id: str) -> Totals:
    return Totals(version.mark(rows_key(topic_id)) or 0, version.mark(hash_key(topic_id)) or 0)
