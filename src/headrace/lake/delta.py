"""A Delta table that keeps its own ledger, through the library deltalake.

The ledger is in the table's `txn` actions: an application id with a version, which the next commits and
checkpoints carry on. A commit of rows also sets the ledger, and is made only if the ledger stands at the
range's edge: load, compare, commit. deltalake refuses a commit if another one has set the same application
id since the table was loaded; it does not refuse a version that was there before. So after any failure the
table is loaded and compared again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.errors import LakeError, NotALakeTable, WrongTable
from headrace.lake.files import WrittenFile, read_proof, sync
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.schema import joined_schema
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
# Each would make the ledger or the proofs false.
REFUSED = {
    "delta.setTransactionRetentionDuration": "lets the ledger expire",
    "delta.enableDeletionVectors": "lets rows be deleted without a change of their file",
    "delta.columnMapping.mode": "gives columns other names in the files",
}
_HARMLESS = ("", "false", "none")
# Another owner's commits come between load and commit; each time, one of the two gets on.
CONFLICTS_MAX = 30

log = logging.getLogger("headrace.lake")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the table."""

    table: DeltaTable
    topic: str
    topic_id: str
    group: str
    ledger: dict[int, Held]
    files: dict[str, int]  # name → bytes
    values: ValueFormat | None = None  # None: the rows have the values' bytes only
    dead_letters: str | None = None  # path of their table, relative to this one
    is_dead_letters: bool = False  # the rows are those that another table could not have
    totals: Totals | None = None  # of a table with the newest record of each key only

    @property
    def is_upsert(self) -> bool:
        return self.totals is not None

    @property
    def own_schema(self) -> pa.Schema:
        """The columns that every row has."""
        return RAW_SCHEMA if self.values is None else self.values.own_schema

    @property
    def version(self) -> int:
        return int(self.table.version())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.table.schema().to_arrow())


class DeltaLake:
    """The table at a path of the local file system."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def create(
        self,
        topic: str,
        topic_id: str,
        group: str,
        schema: pa.Schema,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Create the table; if another owner was quicker, the table is that one's."""
        self.path.mkdir(parents=True, exist_ok=True)
        properties = {TOPIC: topic, TOPIC_ID: topic_id, GROUP: group, **(more or {})}
        try:
            DeltaTable.create(str(self.path), schema, configuration=properties, raise_if_key_not_exists=False)
        except DeltaError:
            if not self.exists():
                raise
        sync(self.path / "_delta_log")
        sync(self.path)

    def load(self) -> Snapshot:
        """Read the newest version; raise if it is not a table of ours, or has lost its promises."""
        try:
            table = DeltaTable(str(self.path))
        except TableNotFoundError as error:
            raise NotALakeTable(f"there is no Delta table at {self.path}") from error
        properties = table.metadata().configuration
        topic, topic_id = properties.get(TOPIC), properties.get(TOPIC_ID)
        if not topic or not topic_id:
            raise NotALakeTable(f"the Delta table at {self.path} was not made from a topic by Headrace")
        refuse_properties(self.path, properties)
        count = table.transaction_version(partitions_key(topic_id)) or 0
        ledger = {}
        for partition in range(count):
            first = table.transaction_version(start_key(topic_id, partition))
            after = table.transaction_version(next_key(topic_id, partition))
            if first is not None and after is not None:
                ledger[partition] = Held(int(first), int(after))
        actions = pa.table(table.get_add_actions(flatten=True))
        files = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist()))
        return Snapshot(
            table,
            topic,
            topic_id,
            properties.get(GROUP) or "",
            ledger,
            files,
            format_in(properties),
            properties.get(DEAD_LETTERS) or None,
            properties.get(IS_DEAD) == "true",
            _totals(table, topic_id) if properties.get(IS_UPSERT) == "true" else None,
        )

    def add_columns(self, wanted: pa.Schema) -> pa.Schema:
        """Add the columns that the table lacks, also inside structures; return its columns in their order."""
        for _ in range(CONFLICTS_MAX):
            snapshot = self.load()
            known = snapshot.schema
            joined = joined_schema(known, wanted)  # another owner may have added a column of the same name
            new = [field for field in joined if field not in known]
            if not new:
                return known
            fields: list[Field] = list(Schema.from_arrow(pa.schema(new)).fields)
            try:
                snapshot.table.alter.add_columns(fields)
            except CommitFailedError as error:
                log.debug("adding columns to %s met another commit: %s", self.path, error)
            self.sync_log(snapshot.version, self.load().version)
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one")

    def set_properties(self, properties: Mapping[str, str]) -> Snapshot:
        before = self.load()
        before.table.alter.set_table_properties(dict(properties), raise_if_not_exists=False)
        after = self.load()
        self.sync_log(before.version, after.version)
        return after

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
        failed: DeltaError | OSError | None = None
        before = snapshot.version
        for _ in range(CONFLICTS_MAX):
            verdict = judge_all(spans, snapshot.ledger)
            is_ours = bool(files) and all(file.name in snapshot.files for file in files)
            if verdict is Verdict.FITS and not all(name in snapshot.files for name in replaced):
                verdict = Verdict.STALE
            if verdict is not Verdict.FITS:
                self.sync_log(before, snapshot.version)
                if verdict is Verdict.HELD and is_ours:  # the commit was made, and only its answer failed
                    return Verdict.FITS, snapshot
                self.remove(files, snapshot)
                return verdict, snapshot
            if failed is not None and not isinstance(failed, CommitFailedError):
                raise failed  # not a conflict: a full disk, a directory without permission
            _check_schema(snapshot, self.path, files)  # another owner may have changed the table
            try:
                self._write(snapshot, files, advance(snapshot.ledger, spans), replaced)
                failed = None
            except (DeltaError, OSError) as error:
                log.debug("the commit to %s failed and is compared again: %s", self.path, error)
                failed = error
            snapshot = self.load()
            if failed is None:
                self.sync_log(before, snapshot.version)
                return Verdict.FITS, snapshot
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one: {failed}")

    def _write(
        self,
        snapshot: Snapshot,
        files: list[WrittenFile],
        changed: Mapping[int, Held],
        replaced: Collection[str],
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(name, True, now_ms, snapshot.files[name]) for name in replaced
        ]
        actions += [AddAction(file.name, file.size, {}, now_ms, True, file.stats) for file in files]
        topic_id = snapshot.topic_id
        versions: list[tuple[str, int]] = []
        for partition, held in changed.items():
            versions.append((start_key(topic_id, partition), held.start))
            versions.append((next_key(topic_id, partition), held.next))
        count = 1 + max(changed, default=-1)
        if count > 1 + max(snapshot.ledger, default=-1):
            versions.append((partitions_key(topic_id), count))
        if snapshot.totals is not None:
            removed = [read_proof(self.path / name) for name in replaced]
            totals = snapshot.totals.moved([file.proof for file in files], removed)
            versions += [(rows_key(topic_id), totals.row_count), (hash_key(topic_id), totals.hash)]
        snapshot.table.create_write_transaction(
            actions,
            "append",
            snapshot.table.schema(),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(name, version) for name, version in versions]
            ),
        )

    def sync_log(self, before: int, after: int) -> None:
        """Wait until the commits are on disk, before the topic is told that it may delete the records."""
        for version in range(before + 1, after + 1):
            path = self.path / "_delta_log" / f"{version:020d}.json"
            if path.exists():
                sync(path)
        sync(self.path / "_delta_log")

    def remove(self, files: Iterable[WrittenFile], snapshot: Snapshot) -> None:
        for file in files:
            if file.name not in snapshot.files:
                (self.path / file.name).unlink(missing_ok=True)


def _totals(table: DeltaTable, topic_id: str) -> Totals:
    found = (table.transaction_version(key) for key in (rows_key(topic_id), hash_key(topic_id)))
    return Totals(*(int(version or 0) for version in found))


def refuse_properties(path: Path, properties: Mapping[str, str | None]) -> None:
    """Raise WrongTable if a property of the table breaks what we promise about it."""
    for name, reason in REFUSED.items():
        if (value := properties.get(name) or "").lower() not in _HARMLESS:
            raise WrongTable(f"table {path}: {name}={value} {reason}: remove the property")


def _check_schema(snapshot: Snapshot, path: Path, files: Iterable[WrittenFile]) -> None:
    """deltalake takes a file with a column that the table lacks, and hides the column."""
    import pyarrow.parquet as pq

    known = {field.name: field.type for field in snapshot.schema}
    for file in files:
        for field in pq.read_schema(path / file.name):
            if known.get(field.name) != field.type:
                raise WrongTable(
                    f"table {path}: column {field.name} of file {file.name} is {field.type}, that of the "
                    f"table is {known.get(field.name, 'missing')}"
                )
