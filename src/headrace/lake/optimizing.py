"""Compaction of a lake table's small files, beside copiers that add new ones; removal of unneeded files.

The proofs of the small files are added up to that of the large one; the rows that are read must agree with
them, so damage is found here and not hidden. deltalake does not notice that two compactions replace the same
file: each raises one application id, and the files must still be in the snapshot that it commits on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.errors import Damaged
from headrace.lake.files import FILE_BYTES, ParquetFile, WrittenFile, read_proof, sync
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.rows import fitted
from headrace.lake.store import Change, Conflict, StoreFailed
from headrace.lake.table import LakeTable, Snapshot
from headrace.machines.lake.compaction import StoredFile, files_key, plan_compaction, unneeded
from headrace.machines.lake.proof import HASH_MASK, WrongFooter, add_up

# As long as Delta keeps removed files by default: queries of that age may still read them.
KEEP_S = 7 * 24 * 3600.0
_BATCH_ROWS = 1 << 16

log = logging.getLogger("headrace.lake")


@dataclass(slots=True)
class Optimized:
    files_before: int = 0  # of the table
    files_after: int = 0
    compacted: int = 0  # files that were joined
    written_bytes: int = 0
    removed_files: int = 0  # from the disk
    removed_bytes: int = 0


class Optimizer:
    def __init__(self, lake: LakeTable, *, target_bytes: int = FILE_BYTES) -> None:
        self._lake = lake
        self._target_bytes = target_bytes

    def compact(self, on_commit: Callable[[], None] = lambda: None) -> Optimized:
        """Join small files, one commit for each large one, until there is nothing to join."""
        snapshot = self._lake.load()
        done = Optimized(files_before=len(snapshot.files), files_after=len(snapshot.files))
        if snapshot.is_upsert:
            return done  # each commit joins small files
        while groups := plan_compaction(self._stored(snapshot), target_bytes=self._target_bytes):
            for group in groups:
                if not all(file.name in snapshot.files for file in group):
                    break  # another owner compacts as well
                new = self.join(snapshot, group)
                is_done, snapshot = self.replace(snapshot, group, new)
                if is_done:
                    done.compacted += len(group)
                    done.written_bytes += new.size
                    on_commit()
        done.files_after = len(snapshot.files)
        return done

    def _stored(self, snapshot: Snapshot) -> list[StoredFile]:
        found = []
        for name, size in snapshot.files.items():
            try:
                proof = read_proof(self._lake.path / name)
            except (WrongFooter, FileNotFoundError) as error:
                log.warning("file %s of table %s is not compacted: %s", name, self._lake.path, error)
                continue
            if proof.proofs:
                found.append(StoredFile(name, size, proof))
        return found

    def join(self, snapshot: Snapshot, group: list[StoredFile]) -> WrittenFile:
        """Write the rows of these files to one, in their order."""
        new = ParquetFile(self._lake.path, snapshot.schema, snapshot.topic_id)
        try:
            for file in group:
                self._copy_rows(file, new, snapshot.schema)
        except BaseException:
            new.discard()
            raise
        return new.finish(add_up(proof for file in group for proof in file.proof.proofs))

    def _copy_rows(self, file: StoredFile, new: ParquetFile, schema: pa.Schema) -> None:
        rows, total = 0, 0
        with pq.ParquetFile(self._lake.path / file.name, page_checksum_verification=True) as old:
            for batch in old.iter_batches(_BATCH_ROWS):
                table = fitted(pa.Table.from_batches([batch]), schema)
                rows += table.num_rows
                total = (total + added_up(row_hashes(table))) & HASH_MASK
                if table.num_rows:
                    new.add(table)
        wanted = sum(proof.hash for proof in file.proof.proofs) & HASH_MASK
        if (rows, total) != (file.proof.row_count, wanted):
            raise Damaged(f"file {file.name} of table {self._lake.path} does not agree with its proof")

    def replace(self, snapshot: Snapshot, group: list[StoredFile], new: WrittenFile) -> tuple[bool, Snapshot]:
        """Commit the new file in place of the others; False if another compaction was quicker."""
        failed: StoreFailed | OSError | None = None
        while True:
            if not all(file.name in snapshot.files for file in group):
                is_ours = new.name in snapshot.files
                if is_ours:
                    self._note_removal(group)
                else:
                    (self._lake.path / new.name).unlink(missing_ok=True)
                return is_ours, snapshot
            if failed is not None:
                (self._lake.path / new.name).unlink(missing_ok=True)
                raise failed
            key = files_key(snapshot.topic_id)
            marks = {key: (snapshot.stored.mark(key) or 0) + 1}
            try:
                snapshot.stored.commit(
                    Change([new], [file.name for file in group], marks, has_same_rows=True)
                )
            except Conflict as error:
                log.debug("the compaction of %s met another commit: %s", self._lake.path, error)
            except (StoreFailed, OSError) as error:
                failed = error  # it may have been made all the same
            before = snapshot.version
            snapshot = self._lake.load()
            self._lake.store.sync(before, snapshot.version)

    def _note_removal(self, group: list[StoredFile]) -> None:
        """Let the age of the files begin now: queries that began before may still read them."""
        for file in group:
            with suppress(FileNotFoundError):
                os.utime(self._lake.path / file.name)

    def remove_unneeded(self, done: Optimized, *, keep_s: float = KEEP_S) -> None:
        """Remove files of ours that the newest version does not name, and has not named for `keep_s`."""
        self._lake.store.forget_history(keep_s=keep_s)
        on_disk = {path.name: path.stat() for path in self._lake.path.glob("headrace-*.parquet")}
        snapshot = self._lake.load()
        changed_ms = {name: stat.st_mtime_ns // 1_000_000 for name, stat in on_disk.items()}
        now_ms = time.time_ns() // 1_000_000
        for name in unneeded(changed_ms, snapshot.files, now_ms=now_ms, keep_ms=round(keep_s * 1000)):
            (self._lake.path / name).unlink(missing_ok=True)
            done.removed_files += 1
            done.removed_bytes += on_disk[name].st_size
        if done.removed_files:
            sync(self._lake.path)
