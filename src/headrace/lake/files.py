"""The Parquet files of a lake table, with a proof in the footer; on disk before a commit names them.

A file has rows of one partition in the order of their offsets; a compacted one may have several partitions.
Names are random, so two owners never write to the same file. A file that no commit names is not part of the
table.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.statistics import FileStats, Statistics
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.proof import FOOTER_KEY, HASH_MASK, FileProof, Proof, WrongFooter

# Rows are gathered to row groups of about this many bytes: large enough to compress and to scan well, small
# enough that a copier needs little memory for each.
ROW_GROUP_BYTES = 32 << 20
ROW_GROUP_ROWS = 1 << 20
# A file ends here, which is also the size to which small ones are compacted.
FILE_BYTES = 128 << 20


class WrittenFile(NamedTuple):
    """A file that is complete and on disk, and that no commit names yet."""

    name: str  # relative to the table
    size: int
    stats: FileStats
    proof: FileProof

    @property
    def spans(self) -> list[Span]:
        return [proof.span for proof in self.proof.proofs]


class ParquetFile:
    """Writes one file. Not used as a context manager: an unfinished file is left to `optimize`."""

    def __init__(self, directory: Path, schema: pa.Schema, topic_id: str) -> None:
        self.name = f"headrace-{uuid.uuid4().hex}.parquet"
        self._path = directory / self.name
        self._schema = schema
        self._topic_id = topic_id
        self._writer = pq.ParquetWriter(
            self._path, schema, compression="zstd", write_page_checksum=True, store_schema=False
        )
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._stats = Statistics()
        self.written_bytes = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._waiting_rows += rows.num_rows
        self._stats.add(rows)
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._waiting_rows:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP_ROWS)
            self.written_bytes = self._path.stat().st_size
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0

    def finish(self, proofs: Iterable[Proof]) -> WrittenFile:
        self._write_group()
        proof = FileProof(self._topic_id, tuple(proofs))
        self._writer.add_key_value_metadata({FOOTER_KEY: proof.to_json()})
        self._writer.close()
        sync(self._path)
        sync(self._path.parent)
        return WrittenFile(self.name, self._path.stat().st_size, self._stats.result(), proof)

    def discard(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)


class Piece(NamedTuple):
    """Records that follow each other in one partition."""

    first: int  # the offset of the first
    rows: pa.Table  # with the columns of the table at this time; a table may get more of them
    dead: pa.Table | None = None  # those that are dead letters instead


def write_span(
    directory: Path, schema: pa.Schema, topic_id: str, span: Span, pieces: Iterable[Piece]
) -> Iterator[WrittenFile]:
    """Write the rows of a range; yield each file when it is complete. The files' ranges make up the span."""
    file: ParquetFile | None = None
    start, sums = span.start, _Sums()
    try:
        for piece in pieces:
            has_other_columns = piece.rows.schema != schema
            if file is not None and (file.written_bytes >= FILE_BYTES or has_other_columns):
                done, file = file, None
                yield done.finish([sums.proof(Span(span.partition, start, piece.first))])
                start, sums = piece.first, _Sums()
            schema = piece.rows.schema
            sums.add(piece)
            if piece.rows.num_rows:
                file = file or ParquetFile(directory, schema, topic_id)
                file.add(piece.rows)
        file = file or ParquetFile(directory, schema, topic_id)
        done, file = file, None
        yield done.finish([sums.proof(Span(span.partition, start, span.end))])
    finally:
        if file is not None:
            file.discard()


class _Sums:
    """Number and hashes of the rows of a range."""

    def __init__(self) -> None:
        self._rows = self._hash = self._dead_rows = self._dead_hash = 0

    def add(self, piece: Piece) -> None:
        self._rows += piece.rows.num_rows
        self._hash = (self._hash + added_up(row_hashes(piece.rows))) & HASH_MASK
        if piece.dead is not None:
            self._dead_rows += piece.dead.num_rows
            self._dead_hash = (self._dead_hash + added_up(row_hashes(piece.dead))) & HASH_MASK

    def proof(self, span: Span) -> Proof:
        return Proof(span, self._rows, self._hash, dead_count=self._dead_rows, dead_hash=self._dead_hash)


def write_loss(directory: Path, schema: pa.Schema, topic_id: str, lost: Span) -> WrittenFile:
    """Write a file without rows, which says that these records were deleted before they were copied."""
    return ParquetFile(directory, schema, topic_id).finish([Proof(lost, 0, 0, is_lost=True)])


def read_proof(path: Path) -> FileProof:
    """Read the proof in a file's footer; raise WrongFooter if there is none."""
    found = (pq.read_metadata(path).metadata or {}).get(FOOTER_KEY.encode())
    if found is None:
        raise WrongFooter("the footer has no proof: another program wrote the file")
    return FileProof.from_json(found)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on disk: the topic may delete the records next."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
