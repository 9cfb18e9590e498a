"""Reads the rows of a lake table in the order of the topic: by partition, then by offset."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.files import read_proof
from headrace.lake.rows import OFFSET, PARTITION, fitted
from headrace.lake.table import Snapshot
from headrace.machines.lake.ledger import Span

_BATCH_ROWS = 1 << 16


def read_rows(
    directory: Path,
    snapshot: Snapshot,
    *,
    partitions: Collection[int] = (),
    start: int = 0,
    end: int | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows with offsets in [start, end) of these partitions, or of all."""
    spans: list[tuple[Span, str]] = []
    for name in snapshot.files:
        spans += [(proof.span, name) for proof in read_proof(directory / name).proofs if proof.row_count]
    for span, name in sorted(spans):
        if partitions and span.partition not in partitions:
            continue
        first, last = max(span.start, start), span.end if end is None else min(span.end, end)
        if first < last:
            yield from span_rows(directory / name, Span(span.partition, first, last), snapshot.schema)


def span_rows(path: Path, span: Span, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a range that a file has."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            offsets = table[OFFSET]
            inside = pc.and_(
                pc.equal(table[PARTITION], span.partition),
                pc.and_(pc.greater_equal(offsets, span.start), pc.less(offsets, span.end)),
            )
            table = table.filter(inside)
            if table.num_rows:
                yield fitted(table, schema)
