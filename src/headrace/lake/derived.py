"""Tables of results: any columns, appended batch by batch, each batch once.

The table remembers the number of each writer's last batch, in the commit of the batch itself. A batch that is
written again, after a kill or a lost answer, is recognised by its number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from headrace.lake.errors import LakeError
from headrace.lake.files import FILE_BYTES, ParquetFile, WrittenFile
from headrace.lake.formats import store_at
from headrace.lake.rows import fitted
from headrace.lake.schema import joined_schema
from headrace.lake.store import Change, Conflict, StoreFailed, Version
from headrace.lake.table import CONFLICTS_MAX
from headrace.lake.table_files import has_types, rewritten

log = logging.getLogger("headrace.lake")


class DerivedTable:
    """The table at a path of the local file system, which may not exist yet."""

    def __init__(self, path: Path | str, format: str | None = None) -> None:
        """`format` is that of a new table."""
        self.path = Path(path)
        self._format = format

    def prepare(self, rows: pa.Schema) -> pa.Schema:
        """Create the table if there is none; return the columns that files of these rows have."""
        store = store_at(self.path, self._format)
        if not store.exists():
            store.create(pa.schema([field.with_nullable(True) for field in rows]), {})
        for _ in range(CONFLICTS_MAX):
            version = store.load()
            joined = joined_schema(version.schema, rows, widens=True)
            if joined == version.schema or not store.needs_columns_first:
                return joined
            with suppress(Conflict):  # another writer's column may be the same
                version.change_columns(joined)
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one")

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

    def commit(self, files: list[WrittenFile], schema: pa.Schema, app_id: str | None, batch: int) -> bool:
        """Add the files; False, and they are removed, if this batch of this writer was added before.

        With no `app_id` the batch has no number, and nothing recognises it.
        """
        store = store_at(self.path, self._format)
        failed: Conflict | StoreFailed | OSError | None = None
        for _ in range(CONFLICTS_MAX):
            version = store.load()
            if failed is not None and files and all(file.name in version.files for file in files):
                store.sync(version.number - 1, version.number)
                return True  # the commit was made, and only its answer failed
            if app_id is not None:
                last = version.mark(app_id)
                if last is not None and last >= batch:
                    self._remove(files)
                    return False
            if failed is not None and not isinstance(failed, Conflict):
                raise failed
            try:
                if self._evolve(version, schema):
                    continue
                files = self._fitting(version, files, schema)
                version.commit(Change(files, (), {} if app_id is None else {app_id: batch}))
                store.sync(version.number, store.load().number)
                return True
            except (Conflict, StoreFailed, OSError) as error:
                log.debug("the commit to %s failed and is compared again: %s", self.path, error)
                failed = error
        raise LakeError(f"table {self.path}: {CONFLICTS_MAX} commits in turn met another one: {failed}")

    def _evolve(self, version: Version, schema: pa.Schema) -> bool:
        """Add columns of the files that the table lacks, and widen others.

        True: the table was changed, and has to be loaded again.
        """
        joined = joined_schema(version.schema, schema, widens=True)
        if joined == version.schema:
            return False
        version.change_columns(joined)
        return True

    def _fitting(self, version: Version, files: list[WrittenFile], schema: pa.Schema) -> list[WrittenFile]:
        """Return the files with the table's types, which another writer may have widened since."""
        found = version.schema
        if all(found.field(each.name).type == each.type for each in schema):
            return files
        fitting = [
            file if has_types(self.path / file.name, found) else rewritten(self.path, file.name, found)
            for file in files
        ]
        self._remove([old for old, new in zip(files, fitting) if old is not new])
        return fitting

    def _remove(self, files: list[WrittenFile]) -> None:
        for file in files:
            (self.path / file.name).unlink(missing_ok=True)
