"""Tables of results: any columns, appended batch by batch, each batch once.

The table remembers the number of each writer's last batch in Delta's `txn` actions, in the commit of the
batch itself. A batch that is written again, after a kill or a lost answer, is recognised by its number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from headrace.lake.delta import CONFLICTS_MAX, DeltaLake, refuse_properties
from headrace.lake.errors import LakeError, WrongTable
from headrace.lake.files import FILE_BYTES, ParquetFile, WrittenFile, sync
from headrace.lake.rows import fitted
from headrace.lake.schema import joined_schema
from headrace.lake.widening import has_types, replace_narrow, rewritten, widen

log = logging.getLogger("headrace.lake")


class DerivedTable:
    """The table at a path of the local file system, which may not exist yet."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def _load(self) -> DeltaTable:
        table = DeltaTable(str(self.path))
        refuse_properties(self.path, table.metadata().configuration)
        if table.metadata().partition_columns:
            raise WrongTable(f"table {self.path} is partitioned: write to one that is not")
        return table

    def prepare(self, rows: pa.Schema) -> pa.Schema:
        """Create the table if there is none; return the columns that files of these rows have."""
        if not DeltaTable.is_deltatable(str(self.path)):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                DeltaTable.create(str(self.path), pa.schema([field.with_nullable(True) for field in rows]))
            except DeltaError:
                if not DeltaTable.is_deltatable(str(self.path)):
                    raise
            sync(self.path / "_delta_log")
        return joined_schema(pa.schema(self._load().schema().to_arrow()), rows, widens=True)

    def write(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> list[WrittenFile]:
        """Write rows to files, which are on disk afterwards and belong to the table after `commit`."""
        files: list[WrittenFile] = []
        file: ParquetFile | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                file = file or ParquetFile(self.path, schema, "")
                file.add(fitted(pa.Table.from_batches([batch]), schema))
                if file.written_bytes >= FILE_BYTES:
                    done, file = file, None
                    files.append(done.finish(()))
            if file is not None:
                done, file = file, None
                files.append(done.finish(()))
        except BaseException:
            if file is not None:
                file.discard()
            self._remove(files)
            raise
        return files

    def commit(self, files: list[WrittenFile], schema: pa.Schema, app_id: str | None, version: int) -> bool:
        """Add the files; False, and they are removed, if this batch of this writer was added before.

        With no `app_id` the batch has no number, and nothing recognises it.
        """
        failed: DeltaError | OSError | None = None
        for _ in range(CONFLICTS_MAX):
            table = self._load()
            named = set(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())
            if failed is not None and files and all(file.name in named for file in files):
                return True  # the commit was made, and only its answer failed
            if app_id is not None:
                last = table.transaction_version(app_id)
                if last is not None and last >= version:
                    self._remove(files)
                    return False
            if failed is not None and not isinstance(failed, CommitFailedError):
                raise failed
            try:
                if self._evolve(table, schema):
                    continue
                files = self._fitting(table, files, schema)
                self._write(table, files, app_id, version)
                self._sync(int(table.version()))
                return True
            except (DeltaError, OSError) as error:
                log.debug("the commit to %s failed and is compared again: %s", self.path, error)
                failed = error
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one: {failed}")

    def _evolve(self, table: DeltaTable, schema: pa.Schema) -> bool:
        """Add columns of the files that the table lacks, and widen others; deltalake would hide the former.

        True: the table was changed, and has to be loaded again.
        """
        found = pa.schema(table.schema().to_arrow())
        try:
            joined = joined_schema(found, schema)
        except WrongTable:
            widen(table, self.path, joined_schema(found, schema, widens=True))
            for _ in range(CONFLICTS_MAX):
                if not replace_narrow(self._load(), self.path):
                    break
                log.info("another writer added files with the old types to %s", self.path)
            return True
        known = {each.name: each.type for each in found}
        changed = pa.schema([each for each in joined if known.get(each.name) != each.type])
        fields: list[Field] = list(Schema.from_arrow(changed).fields)
        if fields:
            table.alter.add_columns(fields)
        return bool(fields)

    def _fitting(self, table: DeltaTable, files: list[WrittenFile], schema: pa.Schema) -> list[WrittenFile]:
        """Return the files with the table's types, which another writer may have widened since."""
        found = pa.schema(table.schema().to_arrow())
        if all(found.field(each.name).type == each.type for each in schema):
            return files
        fitting = [
            file if has_types(self.path / file.name, found) else rewritten(self.path, file.name, found)
            for file in files
        ]
        self._remove([old for old, new in zip(files, fitting) if old is not new])
        return fitting

    def _write(self, table: DeltaTable, files: list[WrittenFile], app_id: str | None, version: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        transactions = [] if app_id is None else [Transaction(app_id, version)]
        table.create_write_transaction(
            [AddAction(file.name, file.size, {}, now_ms, True, file.stats) for file in files],
            "append",
            table.schema(),
            commit_properties=CommitProperties(app_transactions=transactions),
        )

    def _sync(self, before: int) -> None:
        DeltaLake(self.path).sync_log(before, int(DeltaTable(str(self.path)).version()))

    def _remove(self, files: list[WrittenFile]) -> None:
        for file in files:
            (self.path / file.name).unlink(missing_ok=True)
