"""Iceberg tables, through the library pyiceberg, each with a catalog of its own in SQLite.

Marks are table properties; rows and properties change in one commit. pyiceberg repeats an append that met
another commit by itself, on the new version: that would add rows twice. With `commit.retry.num-retries=0` it
does not, so that a commit is made on the version that the caller has compared, or not at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import Record
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from headrace.lake.errors import NotALakeTable, WrongTable
from headrace.lake.files import WrittenFile, sync
from headrace.lake.formats import CATALOG, ICEBERG
from headrace.lake.iceberg_columns import arrow_columns, file_problem, iceberg_columns, renamed_column
from headrace.lake.iceberg_io import LocalFileIO, location_of, path_of
from headrace.lake.store import Change, Conflict, StoreFailed
from headrace.lake.table import TOPIC
from headrace.machines.lake.history import outlived

CATALOG_NAME, NAMESPACE = "headrace", "lake"
RETRIES = "commit.retry.num-retries"
PROPERTIES = {
    RETRIES: "0",
    # a commit for every few seconds makes many small manifests, and a list of metadata files
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
# Every commit writes the list of all snapshots. Their files stay as long as a query may need them.
SNAPSHOTS_MAX = 100
# Another process holds the catalog's lock only while it changes one row.
LOCK_TIMEOUT_S = 60
# Two owners may create the catalog at the same time, each for a moment in the other's way.
CREATE_ATTEMPTS = 5
_FORBIDDEN = frozenset("#?%")


class IcebergVersion:
    def __init__(self, table: Table, store: IcebergStore) -> None:
        self._loaded = table
        self._store = store

    @property
    def table(self) -> Table:
        """This version, in an object that a commit may move on to the next one, as pyiceberg's do."""
        loaded = self._loaded
        return Table(loaded.name(), loaded.metadata, loaded.metadata_location, loaded.io, loaded.catalog)

    @property
    def number(self) -> int:
        return sequence_number(self._loaded)

    @property
    def properties(self) -> Mapping[str, str | None]:
        return self._loaded.metadata.properties

    @property
    def _is_of_topic(self) -> bool:
        return TOPIC in self.properties

    @cached_property
    def schema(self) -> pa.Schema:
        return arrow_columns(self._loaded.schema(), of_topic=self._is_of_topic)

    @cached_property
    def data_files(self) -> dict[str, DataFile]:
        return self._store.data_files(self._loaded)

    @cached_property
    def files(self) -> dict[str, int]:
        return {name: file.file_size_in_bytes for name, file in self.data_files.items()}

    @property
    def location(self) -> str:
        return str(path_of(self._loaded.metadata_location))

    def row_count(self) -> int:
        return sum(file.record_count for file in self.data_files.values())

    def mark(self, key: str) -> int | None:
        found = self.properties.get(key)
        return None if found is None else int(found)

    def commit(self, change: Change) -> None:
        added = [self._data_file(file) for file in change.added]
        table = self.table
        with self._committing():
            transaction = table.transaction()
            if change.marks:
                transaction.set_properties({key: str(number) for key, number in change.marks.items()})
            update = transaction.update_snapshot()
            with update.overwrite() if change.removed else update.merge_append() as producer:
                for name in change.removed:
                    producer.delete_data_file(self.data_files[name])
                for file in added:
                    producer.append_data_file(file)
            transaction.commit_transaction()
        if len(snapshots_of(table)) > 2 * SNAPSHOTS_MAX:
            with suppress(Conflict):  # the next commit tries again
                IcebergVersion(table, self._store).expire(snapshots_of(table)[:-SNAPSHOTS_MAX])

    def _data_file(self, file: WrittenFile) -> DataFile:
        path = self._store.path / file.name
        if (problem := file_problem(pq.read_schema(path), self.schema)) is not None:
            raise WrongTable(f"table {self._store.path}: file {file.name}: {problem}")
        ids = {name: self.schema.field(name).metadata[b"PARQUET:field_id"] for name in file.stats.null_counts}
        bounds = [
            {int(ids[name]): self._bound(name, number) for name, number in found.items()}
            for found in (file.stats.least, file.stats.most)
        ]
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location_of(path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=file.stats.row_count,
            file_size_in_bytes=file.size,
            null_value_counts={int(ids[name]): count for name, count in file.stats.null_counts.items()},
            lower_bounds=bounds[0],
            upper_bounds=bounds[1],
            spec_id=self._loaded.metadata.default_spec_id,
        )

    def _bound(self, name: str, number: int) -> bytes:
        """Return a number, or the microseconds of a moment, as Iceberg writes it in its lists of files."""
        size = 4 if self.schema.field(name).type == pa.int32() else 8
        return number.to_bytes(size, "little", signed=True)

    def change_columns(self, schema: pa.Schema) -> None:
        with self._committing(), self.table.update_schema() as update:
            try:
                update.union_by_name(iceberg_columns(schema, of_topic=self._is_of_topic))
            except (ValidationError, TypeError, ValueError) as error:
                raise WrongTable(f"table {self._store.path}: {error}") from error

    def set_properties(self, properties: Mapping[str, str]) -> None:
        with self._committing(), self.table.transaction() as transaction:
            transaction.set_properties(dict(properties))

    def expire(self, snapshots: list[Snapshot]) -> None:
        """Forget old snapshots. Their files are removed later, when no query can need them."""
        ids = [each.snapshot_id for each in snapshots]
        with self._committing(), self.table.transaction() as transaction:
            ExpireSnapshots(transaction).by_ids(ids).commit()
        for snapshot in snapshots:
            self._store.note_removal(snapshot)

    @contextmanager
    def _committing(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedException, ValidationException) as error:
            raise Conflict(str(error)) from error
        except SQLAlchemyError as error:
            raise StoreFailed(f"table {self._store.path}: {error}") from error
        finally:
            self._store.close(self._loaded)


class IcebergStore:
    format = ICEBERG
    needs_columns_first = True

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._by_manifest: dict[str, list[DataFile]] = {}  # manifests never change; those of the last load
        self._made: SqlCatalog | None = None  # it keeps no connection open, but what it has compiled

    @property
    def _identifier(self) -> tuple[str, str]:
        return NAMESPACE, self.path.absolute().name

    def exists(self) -> bool:
        if not (self.path / CATALOG).exists():
            return False
        with self._catalog() as catalog:
            return bool(catalog.list_tables(NAMESPACE))

    def create(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        if wrong := _FORBIDDEN & set(str(self.path.absolute())):
            raise WrongTable(f"table {self.path}: the path of an Iceberg table cannot have {min(wrong)!r}")
        columns = iceberg_columns(schema, of_topic=TOPIC in properties)
        self.path.mkdir(parents=True, exist_ok=True)
        with self._catalog() as catalog:
            with suppress(NamespaceAlreadyExistsError, IntegrityError):
                catalog.create_namespace(NAMESPACE)
            if catalog.list_tables(NAMESPACE):
                return
            with suppress(TableAlreadyExistsError):
                catalog.create_table(
                    self._identifier,
                    columns,
                    location=location_of(self.path),
                    properties={**PROPERTIES, **properties},
                )
        sync(self.path)

    def load(self) -> IcebergVersion:
        if not (self.path / CATALOG).exists():
            raise NotALakeTable(f"there is no Iceberg table at {self.path}")
        try:
            with self._catalog() as catalog:
                table = catalog.load_table(self._identifier)
        except NoSuchTableError as error:
            raise NotALakeTable(
                f"there is no Iceberg table at {self.path}, or it was moved: Iceberg stores whole paths"
            ) from error
        except FileNotFoundError as error:
            raise WrongTable(
                f"table {self.path} lacks its metadata at {error.filename}: Iceberg stores whole paths, so a "
                "table cannot be moved"
            ) from error
        except (SQLAlchemyError, OSError) as error:
            raise StoreFailed(f"table {self.path}: {error}") from error
        self._check(table)
        return IcebergVersion(table, self)

    def _check(self, table: Table) -> None:
        """Raise WrongTable if the table breaks what we promise about it."""
        metadata = table.metadata
        if isinstance(metadata, TableMetadataV1):
            raise WrongTable(f"table {self.path} has version 1 of Iceberg's format: upgrade it to version 2")
        if (place := path_of(metadata.location)) != self.path.absolute():
            raise WrongTable(
                f"table {self.path} was made at {place}, and Iceberg stores whole paths: move it back"
            )
        if (retries := metadata.properties.get(RETRIES, "4")) != "0":
            raise WrongTable(
                f"table {self.path}: {RETRIES}={retries} lets pyiceberg repeat a commit and add rows twice: "
                "set it to 0"
            )
        if not metadata.spec().is_unpartitioned():
            raise WrongTable(f"table {self.path} is partitioned: write to one that is not")
        if (what := renamed_column(metadata.schemas)) is not None:
            raise WrongTable(f"table {self.path}: {what}, but its files have the old names. Make a new table")

    def data_files(self, table: Table) -> dict[str, DataFile]:
        """Return the files of a version by their names, relative to the table."""
        snapshot = table.current_snapshot()
        found: dict[str, list[DataFile]] = {}
        for manifest in () if snapshot is None else snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DELETES:
                raise WrongTable(
                    f"table {self.path} has rows that are deleted without a change of their file: rewrite "
                    "its data files"
                )
            path = manifest.manifest_path
            found[path] = self._by_manifest.get(path) or [
                entry.data_file for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            ]
        self._by_manifest = found
        return {self._name(file): file for files in found.values() for file in files}

    def _name(self, file: DataFile) -> str:
        path = path_of(file.file_path)
        own = self.path.absolute()
        return str(path.relative_to(own)) if path.is_relative_to(own) else str(path)

    @contextmanager
    def _catalog(self) -> Iterator[SqlCatalog]:
        if self._made is None:
            self._made = _open_catalog(self.path.absolute() / CATALOG)
        try:
            yield self._made
        finally:
            self._made.close()

    def close(self, table: Table) -> None:
        """Close the catalog after a commit; SQLite's own commit is on disk when its journal's name is not."""
        assert isinstance(table.catalog, SqlCatalog)
        table.catalog.close()
        sync(self.path)

    def sync(self, before: int, after: int) -> None:
        """Nothing to do: metadata is on disk before the catalog names it, and the catalog when it answers."""

    # --- history -----------------------------------------------------------------------------------------

    def note_removal(self, snapshot: Snapshot) -> None:
        """Let the age of a snapshot's lists begin now: queries that began before may still read them."""
        lists = [snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(LocalFileIO()))]
        for location in lists:
            with suppress(FileNotFoundError):
                os.utime(path_of(location))

    def forget_history(self, *, keep_s: float) -> None:
        version = self.load()
        snapshots = snapshots_of(version.table)
        since_ms = round((time.time() - keep_s) * 1000)
        old = outlived([each.timestamp_ms for each in snapshots], since_ms)
        if old:
            with suppress(Conflict):  # next time
                version.expire([snapshots[place] for place in old])
        self._remove_metadata(since_ms)

    def _remove_metadata(self, since_ms: int) -> None:
        """Remove files of metadata that nothing names, such as those of a commit that was refused."""
        directory = self.path / "metadata"
        on_disk = {path: path.stat().st_mtime_ns // 1_000_000 for path in directory.iterdir()}
        table = self.load().table
        needed = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
        for snapshot in table.metadata.snapshots:
            needed.add(snapshot.manifest_list)
            needed |= {each.manifest_path for each in snapshot.manifests(table.io)}
        paths = {path_of(location) for location in needed}
        for path, changed_ms in on_disk.items():
            if path.absolute() not in paths and changed_ms < since_ms:
                path.unlink(missing_ok=True)


def sequence_number(table: Table) -> int:
    assert not isinstance(table.metadata, TableMetadataV1), "such a table was refused"
    return table.metadata.last_sequence_number


def snapshots_of(table: Table) -> list[Snapshot]:
    """Return the snapshots in the order of their commits."""
    return sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)


def _open_catalog(path: Path) -> SqlCatalog:
    properties = {
        "uri": f"sqlite:///{path}?timeout={LOCK_TIMEOUT_S}",
        "py-io-impl": f"{LocalFileIO.__module__}.{LocalFileIO.__qualname__}",
    }
    for _ in range(CREATE_ATTEMPTS - 1):
        with suppress(OperationalError):
            return SqlCatalog(CATALOG_NAME, **properties)
    return SqlCatalog(CATALOG_NAME, **properties)
