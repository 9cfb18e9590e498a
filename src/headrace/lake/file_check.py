"""The rows of one file of a lake table, compared with the proof in its footer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.files import read_proof
from headrace.lake.report import FileRows, Report
from headrace.lake.row_hash import row_hashes
from headrace.lake.rows import OFFSET, PARTITION
from headrace.machines.lake.proof import Fault, FileProof, Finding, WrongFooter

_BATCH_ROWS = 1 << 17


class CheckedFile(NamedTuple):
    proof: FileProof
    ranges: list[FileRows]


def check_file(
    path: Path,
    name: str,
    size: int,
    report: Report,
    *,
    keeps: bool,
    is_ordered: bool = True,
    on_rows: Callable[[pa.Table, Any], None] = lambda rows, hashes: None,
) -> CheckedFile | None:
    """Read every row of a file, and compare them with its proof; None if it cannot be read.

    `keeps`: the ranges have their offsets and hashes afterwards. `is_ordered`: the offsets of a partition
    have to rise.
    """
    report.files += 1
    try:
        found = path.stat().st_size
        if found != size:
            text = f"has {found} bytes, but the table's log says {size}"
            report.findings.append(Finding(Fault.FILE_DAMAGED, text, name))
        proof = read_proof(path)
        ranges = [FileRows(one) for one in proof.proofs]
        others = 0
        for table, hashes in _read(path):
            on_rows(table, hashes)
            report.rows += table.num_rows
            partitions, offsets = (table[column].to_numpy() for column in (PARTITION, OFFSET))
            others += _distribute(ranges, partitions, offsets, hashes, keeps=keeps)
    except FileNotFoundError:
        report.findings.append(Finding(Fault.FILE_MISSING, "is named by the table's log, but missing", name))
        return None
    except WrongFooter as error:
        report.findings.append(Finding(Fault.NO_PROOF, str(error), name))
        return None
    except (OSError, pa.ArrowException) as error:
        text = f"cannot be read: {str(error).splitlines()[0]}"
        report.findings.append(Finding(Fault.FILE_DAMAGED, text, name))
        return None
    if others:
        text = f"has {others} rows outside the ranges of its proof"
        report.findings.append(Finding(Fault.ROWS_ADDED, text, name))
    for rows in ranges:
        _check_rows(rows, name, report, is_ordered=is_ordered)
    return CheckedFile(proof, ranges)


def _read(path: Path) -> Iterator[tuple[pa.Table, Any]]:
    """Yield rows and their hashes."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            yield table, row_hashes(table)


def _distribute(ranges: list[FileRows], partitions: Any, offsets: Any, hashes: Any, *, keeps: bool) -> int:
    """Give each row to its range; return how many have none."""
    left = len(offsets)
    for rows in ranges:
        span = rows.proof.span
        inside = (partitions == span.partition) & (offsets >= span.start) & (offsets < span.end)
        if inside.all():
            rows.add(offsets, hashes, keeps=keeps)
            return 0
        if inside.any():
            rows.add(offsets[inside], hashes[inside], keeps=keeps)
            left -= int(inside.sum())
    return left


def _check_rows(rows: FileRows, name: str, report: Report, *, is_ordered: bool) -> None:
    proof = rows.proof
    if rows.count != proof.row_count:
        fault = Fault.ROWS_MISSING if rows.count < proof.row_count else Fault.ROWS_ADDED
        text = f"has {rows.count} rows for {proof.span}, but its proof says {proof.row_count}"
        report.findings.append(Finding(fault, text, name, proof.span))
    elif rows.hash != proof.hash:
        text = f"has other rows for {proof.span} than those of its proof: their hashes differ"
        report.findings.append(Finding(Fault.ROWS_CHANGED, text, name, proof.span))
    if is_ordered and not rows.is_ordered:
        text = f"has rows for {proof.span} whose offsets do not rise"
        report.findings.append(Finding(Fault.TWICE, text, name, proof.span))
