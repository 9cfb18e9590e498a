"""Delta tables, through the library deltalake.

Marks are Delta's `txn` actions: an application id with a version, which the next commits and checkpoints
carry on. deltalake refuses a commit if another one has set the same application id since the table was
loaded, and takes it otherwise. It does not refuse a version that was there before: the caller compares.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.delta_stats import delta_stats
from headrace.lake.delta_widening import replace_narrow_files, widen
from headrace.lake.errors import NotALakeTable, WrongTable
from headrace.lake.files import sync
from headrace.lake.formats import DELTA
from headrace.lake.schema import joined_schema
from headrace.lake.store import Change, Conflict, StoreFailed

LOG = "_delta_log"
# Each would make the ledger or the proofs false.
REFUSED = {
    "delta.setTransactionRetentionDuration": "lets the ledger expire",
    "delta.enableDeletionVectors": "lets rows be deleted without a change of their file",
    "delta.columnMapping.mode": "gives columns other names in the files",
}
_HARMLESS = ("", "false", "none")


class DeltaVersion:
    def __init__(self, table: DeltaTable, path: Path) -> None:
        self.table = table
        self._path = path
        self.properties: Mapping[str, str | None] = table.metadata().configuration
        actions = pa.table(table.get_add_actions(flatten=True))
        self.files: dict[str, int] = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist()))

    @property
    def number(self) -> int:
        return int(self.table.version())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.table.schema().to_arrow())

    @property
    def location(self) -> str:
        return str(self._path)

    def row_count(self) -> int:
        return int(self.table.count())

    def mark(self, key: str) -> int | None:
        found = self.table.transaction_version(key)
        return None if found is None else int(found)

    def commit(self, change: Change) -> None:
        self._check_schemas(change)
        now_ms = time.time_ns() // 1_000_000
        has_changed = not change.has_same_rows
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(name, has_changed, now_ms, self.files[name]) for name in change.removed
        ]
        actions += [
            AddAction(file.name, file.size, {}, now_ms, has_changed, delta_stats(file.stats))
            for file in change.added
        ]
        marks = [Transaction(name, version) for name, version in change.marks.items()]
        try:
            self.table.create_write_transaction(
                actions,
                "append",
                self.table.schema(),
                commit_properties=CommitProperties(app_transactions=marks),
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        except DeltaError as error:
            raise StoreFailed(f"table {self._path}: {error}") from error

    def _check_schemas(self, change: Change) -> None:
        """deltalake takes a file with a column that the table lacks, and hides the column."""
        known = {field.name: field.type for field in self.schema}
        for file in change.added:
            for field in pq.read_schema(self._path / file.name):
                if known.get(field.name) != field.type:
                    raise WrongTable(
                        f"table {self._path}: column {field.name} of file {file.name} is {field.type}, that "
                        f"of the table is {known.get(field.name, 'missing')}"
                    )

    def change_columns(self, schema: pa.Schema) -> None:
        try:
            if _is_wider(schema, self.schema):
                widen(self.table, self._path, schema)
                replace_narrow_files(self._path)
            else:
                self.table.alter.add_columns(_new_fields(schema, self.schema))
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        except DeltaError as error:
            raise StoreFailed(f"table {self._path}: {error}") from error

    def set_properties(self, properties: Mapping[str, str]) -> None:
        try:
            self.table.alter.set_table_properties(dict(properties), raise_if_not_exists=False)
        except CommitFailedError as error:
            raise Conflict(str(error)) from error


class DeltaStore:
    format = DELTA
    needs_columns_first = False

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(
                str(self.path), schema, configuration=dict(properties), raise_if_key_not_exists=False
            )
        except DeltaError:
            if not self.exists():
                raise
        sync(self.path / LOG)
        sync(self.path)

    def load(self) -> DeltaVersion:
        try:
            table = DeltaTable(str(self.path))
        except TableNotFoundError as error:
            raise NotALakeTable(f"there is no Delta table at {self.path}") from error
        version = DeltaVersion(table, self.path)
        refuse_properties(self.path, version.properties)
        if table.metadata().partition_columns:
            raise WrongTable(f"table {self.path} is partitioned: write to one that is not")
        return version

    def sync(self, before: int, after: int) -> None:
        for version in range(before + 1, after + 1):
            path = self.path / LOG / f"{version:020d}.json"
            if path.exists():
                sync(path)
        sync(self.path / LOG)

    def forget_history(self, *, keep_s: float) -> None:
        """Nothing to do: with each checkpoint deltalake removes entries of the log that have expired."""


def _is_wider(schema: pa.Schema, known: pa.Schema) -> bool:
    try:
        return bool(joined_schema(known, schema) != schema)
    except WrongTable:
        return True


def _new_fields(schema: pa.Schema, known: pa.Schema) -> list[Field]:
    """Return the columns that the table lacks, and those that get new fields inside."""
    return list(Schema.from_arrow(pa.schema([field for field in schema if field not in known])).fields)


def refuse_properties(path: Path, properties: Mapping[str, str | None]) -> None:
    """Raise WrongTable if a property of the table breaks what we promise about it."""
    for name, reason in REFUSED.items():
        if (value := properties.get(name) or "").lower() not in _HARMLESS:
            raise WrongTable(f"table {path}: {name}={value} {reason}: remove the property")
