"""Checks a lake table: every row by the proofs in the files, every offset by the ledger, and the topic.

Without the topic: all files are there, their rows agree with their proofs in number and hash, and their
ranges are the ledger's, each offset once. With it: each record that the topic still has is in the table, as
it is in the topic. Offsets without a row are told apart: control records, aborted, compacted and lost ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.dead_letter_check import DeadLetters
from headrace.lake.dead_letters import dead_letters_of
from headrace.lake.delta import DeltaLake, Snapshot
from headrace.lake.errors import NotALakeTable
from headrace.lake.files import read_proof
from headrace.lake.reading import read_rows
from headrace.lake.report import FileRows, Report
from headrace.lake.row_hash import row_hashes
from headrace.lake.rows import OFFSET, PARTITION
from headrace.lake.topic import LakeTopic
from headrace.lake.topic_comparison import TopicRecords
from headrace.lake.values import ValueDecoder
from headrace.machines.lake.proof import Fault, FileProof, Finding, WrongFooter, check_ranges

_BATCH_ROWS = 1 << 17


def verify(
    directory: Path,
    snapshot: Snapshot,
    topic: LakeTopic | None = None,
    on_file: Callable[[], None] = lambda: None,
    decoder: ValueDecoder | None = None,
) -> Report:
    """Check the table; with a topic, compare it with the records that the topic still has.

    A table with typed columns needs its decoder for that.
    """
    report = Report()
    dead = read_dead_letters(directory, snapshot, report)
    against = None if topic is None else TopicRecords(topic, snapshot, decoder, dead)
    proofs: dict[str, FileProof] = {}
    for name, size in sorted(snapshot.files.items()):
        proof = _check_file(directory / name, name, size, report, against)
        if proof is not None:
            proofs[name] = proof
            dead.compare(proof, name, report)
        on_file()
    found = check_ranges(proofs, snapshot.ledger, snapshot.topic_id)
    if snapshot.is_dead_letters:  # ranges without dead letters have no file
        found = [one for one in found if one.fault is not Fault.GAP]
    report.findings += found
    held = sum(one.next - one.start for one in snapshot.ledger.values())
    report.lost = sum(proof.span.size for file in proofs.values() for proof in file.proofs if proof.is_lost)
    report.missing_offsets = max(0, held - report.rows - report.lost - report.dead_letters)
    return report


def read_dead_letters(directory: Path, snapshot: Snapshot, report: Report) -> DeadLetters:
    """Check the table of dead letters, if there is one, and return them."""
    dead = dead_letters_of(DeltaLake(directory), snapshot)
    if dead is None:
        return DeadLetters()
    try:
        found = dead.lake.load()
        own = verify(dead.lake.path, found)
    except NotALakeTable as error:
        report.findings.append(Finding(Fault.DEAD_LETTERS_DIFFER, f"dead letters: {error}"))
        return DeadLetters()
    report.findings += [each._replace(text=f"of the dead letters {each.text}") for each in own.findings]
    try:
        return DeadLetters(read_rows(dead.lake.path, found))
    except (OSError, pa.ArrowException, WrongFooter):  # reported above
        return DeadLetters()


def _check_file(
    path: Path, name: str, size: int, report: Report, against: TopicRecords | None
) -> FileProof | None:
    report.files += 1
    try:
        found = path.stat().st_size
        if found != size:
            text = f"has {found} bytes, but the table's log says {size}"
            report.findings.append(Finding(Fault.FILE_DAMAGED, text, name))
        proof = read_proof(path)
        ranges = [FileRows(one) for one in proof.proofs]
        others = 0
        for partitions, offsets, hashes in _read(path):
            report.rows += len(offsets)
            others += _distribute(ranges, partitions, offsets, hashes, keeps=against is not None)
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
        _check_rows(rows, name, report)
        if against is not None and not rows.proof.is_lost:
            against.compare(rows, name, report)
    return proof


def _read(path: Path) -> Iterator[tuple[Any, Any, Any]]:
    """Yield partitions, offsets and hashes of the rows."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            numbers = (table[name].to_numpy() for name in (PARTITION, OFFSET))
            yield *numbers, row_hashes(table)


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


def _check_rows(rows: FileRows, name: str, report: Report) -> None:
    proof = rows.proof
    if rows.count != proof.row_count:
        fault = Fault.ROWS_MISSING if rows.count < proof.row_count else Fault.ROWS_ADDED
        text = f"has {rows.count} rows for {proof.span}, but its proof says {proof.row_count}"
        report.findings.append(Finding(fault, text, name, proof.span))
    elif rows.hash != proof.hash:
        text = f"has other rows for {proof.span} than those of its proof: their hashes differ"
        report.findings.append(Finding(Fault.ROWS_CHANGED, text, name, proof.span))
    if not rows.is_ordered:
        text = f"has rows for {proof.span} whose offsets do not rise"
        report.findings.append(Finding(Fault.TWICE, text, name, proof.span))
