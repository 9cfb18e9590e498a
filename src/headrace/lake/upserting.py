"""Upserts: a table with the newest record of each key, for topics that are compacted.

A row is the newest record of its key in its partition, by offset; a tombstone removes it. A commit replaces
the files that have rows of the keys that changed, and small files, so that there are few of them. The same
commit moves the ledger, and the number and the hash of all rows, by which `verify` finds what is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.errors import BadRecord, Damaged
from headrace.lake.files import FILE_BYTES, ParquetFile, WrittenFile, read_proof
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.rows import KEY, OFFSET, PARTITION, TOMBSTONE, fitted
from headrace.lake.table import LakeTable, Snapshot
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.proof import HASH_MASK, Proof

# Files up to this size are joined with the new rows. It is what a commit of few rows writes at most.
SMALL_BYTES = 8 << 20
# Rows of a range are reduced to the newest of each key whenever they have so many bytes.
_FOLD_BYTES = 64 << 20
_BATCH_ROWS = 1 << 16


class Upserts:
    """What one step of a copier changes in a table."""

    def __init__(self, lake: LakeTable) -> None:
        self._lake = lake
        self.replaced: list[str] = []  # files that the commit removes
        self.row_count = 0  # rows that are new or newer

    def write(self, snapshot: Snapshot, records: Iterable[pa.Table]) -> list[WrittenFile]:
        """Write the files that the table has after these records; `replaced` are those that it has no more.

        The records of a partition are in the order of their offsets, and all newer than those of the table.
        """
        self.replaced, self.row_count = [], 0
        newest = _newest(records)
        if newest is None:
            return []
        schema = self._lake.load().schema  # the records may have brought columns
        newest = fitted(newest, schema)
        rows = newest.filter(pc.invert(is_tombstone(newest)))
        self.row_count = rows.num_rows
        output = _Output(self._lake.path, schema, snapshot.topic_id)
        try:
            for name, size in sorted(snapshot.files.items()):
                if size <= SMALL_BYTES or _has_keys(self._lake.path / name, newest):
                    self.replaced.append(name)
                    for table in self._others(name, newest, schema):
                        output.add(table)
            output.add(rows)
            return output.finish()
        except BaseException:
            output.discard()
            raise

    def _others(self, name: str, newest: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a file whose keys did not change; raise Damaged if it has other rows by now."""
        count, total = 0, 0
        path = self._lake.path / name
        proof = read_proof(path)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                table = fitted(pa.Table.from_batches([batch]), schema)
                count += table.num_rows
                total = (total + added_up(row_hashes(table))) & HASH_MASK
                yield table.filter(pc.invert(_is_changed(table, newest)))
        if (count, total) != (proof.row_count, sum(each.hash for each in proof.proofs) & HASH_MASK):
            raise Damaged(f"file {name} of table {self._lake.path} does not agree with its proof")


def is_tombstone(rows: pa.Table) -> pa.ChunkedArray:
    if TOMBSTONE in rows.column_names:
        return pc.fill_null(rows[TOMBSTONE], False)
    return rows["_value"].is_null()


def _newest(records: Iterable[pa.Table]) -> pa.Table | None:
    """Return the last record of each key; None if there are no records."""
    held: list[pa.Table] = []
    size = 0
    for table in records:
        if not table.num_rows:
            continue
        if table[KEY].null_count:
            first = table.filter(table[KEY].is_null())
            raise BadRecord(
                f"the record at offset {first[OFFSET][0]} of partition {first[PARTITION][0]} has no key: "
                "only records with keys can be upserts"
            )
        held.append(table)
        size += table.nbytes
        if size > _FOLD_BYTES:
            held, size = [_reduced(held)], 0
    return _reduced(held) if held else None


def _reduced(tables: list[pa.Table]) -> pa.Table:
    # a table may get columns meanwhile, but loses none
    rows = pa.concat_tables([fitted(table, tables[-1].schema) for table in tables]).combine_chunks()
    last = rows.select([PARTITION, KEY, OFFSET]).group_by([PARTITION, KEY]).aggregate([(OFFSET, "max")])
    kept = last.select([PARTITION, f"{OFFSET}_max"])
    wanted = pc.is_in(_pairs(rows[PARTITION], rows[OFFSET]), _pairs(kept[PARTITION], kept[f"{OFFSET}_max"]))
    return rows.filter(wanted)


def _pairs(partitions: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array:
    """One value for each pair: Arrow looks up no structures. Numbers and bytes become text of fixed form."""
    prefix = pc.cast(partitions, pa.string())
    if pa.types.is_integer(others.type):
        found = pc.binary_join_element_wise(prefix, pc.cast(others, pa.string()), "/")
    else:
        found = pc.binary_join_element_wise(
            pc.cast(prefix, pa.binary()), others, pa.scalar(b"/", pa.binary())
        )
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _is_changed(table: pa.Table, newest: pa.Table) -> pa.Array:
    return pc.is_in(_pairs(table[PARTITION], table[KEY]), _pairs(newest[PARTITION], newest[KEY]))


def _has_keys(path: Path, newest: pa.Table) -> bool:
    with pq.ParquetFile(path) as file:
        return any(
            pc.any(_is_changed(pa.Table.from_batches([batch]), newest)).as_py()
            for batch in file.iter_batches(_BATCH_ROWS, columns=[PARTITION, KEY])
        )


class _Output:
    """Files of about the usual size, with a proof for each partition."""

    def __init__(self, directory: Path, schema: pa.Schema, topic_id: str) -> None:
        self._directory, self._schema, self._topic_id = directory, schema, topic_id
        self._done: list[WrittenFile] = []
        self._file: ParquetFile | None = None
        self._proofs: dict[int, Proof] = {}

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._file is None:
            self._file = ParquetFile(self._directory, self._schema, self._topic_id)
        self._file.add(rows)
        for partition in pc.unique(rows[PARTITION]).to_pylist():
            part = rows.filter(pc.equal(rows[PARTITION], partition))
            self._proofs[partition] = _joined(self._proofs.get(partition), _proof(partition, part))
        if self._file.written_bytes >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            done, self._file = self._file, None
            self._done.append(done.finish(self._proofs[each] for each in sorted(self._proofs)))
            self._proofs = {}

    def finish(self) -> list[WrittenFile]:
        self._end_file()
        return self._done

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()
        for file in self._done:
            (self._directory / file.name).unlink(missing_ok=True)


def _proof(partition: int, rows: pa.Table) -> Proof:
    found = pc.min_max(rows[OFFSET]).as_py()
    span = Span(partition, found["min"], found["max"] + 1)
    return Proof(span, rows.num_rows, added_up(row_hashes(rows)))


def _joined(one: Proof | None, other: Proof) -> Proof:
    if one is None:
        return other
    start, end = min(one.span.start, other.span.start), max(one.span.end, other.span.end)
    span = Span(one.span.partition, start, end)
    return Proof(span, one.row_count + other.row_count, (one.hash + other.hash) & HASH_MASK)
