"""Checks a lake table: every row by the proofs in the files, every offset by the ledger, and the topic.

Without the topic: all files are there, their rows agree with their proofs in number and hash, and their
ranges are the ledger's, each offset once. With it: each record that the topic still has is in the table, as
it is in the topic. Offsets without a row are told apart: control records, aborted, compacted and lost ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client.threads.range_reader import DataLost
from headrace.lake.delta import Snapshot
from headrace.lake.files import read_proof
from headrace.lake.row_hash import added_up, row_hashes
from headrace.lake.rows import OFFSET, PARTITION
from headrace.lake.topic import LakeTopic
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.plan import Log
from headrace.machines.lake.proof import (
    HASH_MASK,
    Fault,
    FileProof,
    Finding,
    Proof,
    WrongFooter,
    check_ranges,
)

# Findings are for people: a table that lost a file of millions of rows must not fill the screen.
FINDINGS_PER_RANGE_MAX = 10
_BATCH_ROWS = 1 << 17


@dataclass(slots=True)
class Report:
    files: int = 0
    rows: int = 0
    missing_offsets: int = 0  # offsets of the ledger without a row
    lost: int = 0  # offsets that the topic had deleted before they were copied, with permission
    findings: list[Finding] = field(default_factory=list)
    # with the topic
    compared: int = 0  # records that are equal in both
    aborted: int = 0
    control: int = 0  # markers of transactions; of a compacted topic also what is no longer there
    compacted: int = 0  # rows whose record the topic has removed since, for a newer one

    @property
    def is_clean(self) -> bool:
        return not self.findings


@dataclass(slots=True)
class _Rows:
    """The rows of one range in one file."""

    proof: Proof
    count: int = 0
    hash: int = 0
    is_ordered: bool = True
    last: int = -1
    offsets: list[Any] = field(default_factory=list)  # kept only if they are compared with the topic
    hashes: list[Any] = field(default_factory=list)

    def add(self, offsets: Any, hashes: Any, *, keeps: bool) -> None:
        self.count += len(offsets)
        self.hash = (self.hash + added_up(hashes)) & HASH_MASK
        if len(offsets):
            is_ordered = self.last < int(offsets[0]) and bool((np.diff(offsets) > 0).all())
            self.is_ordered = self.is_ordered and is_ordered
            self.last = int(offsets[-1])
        if keeps:
            self.offsets.append(offsets)
            self.hashes.append(hashes)


def verify(
    directory: Path,
    snapshot: Snapshot,
    topic: LakeTopic | None = None,
    on_file: Callable[[], None] = lambda: None,
) -> Report:
    """Check the table; with a topic, compare it with the records that the topic still has."""
    report = Report()
    against = None if topic is None else _Topic(topic, snapshot)
    proofs: dict[str, FileProof] = {}
    for name, size in sorted(snapshot.files.items()):
        proof = _check_file(directory / name, name, size, report, against)
        if proof is not None:
            proofs[name] = proof
        on_file()
    report.findings += check_ranges(proofs, snapshot.ledger, snapshot.topic_id)
    held = sum(one.next - one.start for one in snapshot.ledger.values())
    report.lost = sum(proof.span.size for file in proofs.values() for proof in file.proofs if proof.is_lost)
    report.missing_offsets = max(0, held - report.rows - report.lost)
    return report


def _check_file(path: Path, name: str, size: int, report: Report, against: _Topic | None) -> FileProof | None:
    report.files += 1
    try:
        found = path.stat().st_size
        if found != size:
            text = f"has {found} bytes, but the table's log says {size}"
            report.findings.append(Finding(Fault.FILE_DAMAGED, text, name))
        proof = read_proof(path)
        ranges = [_Rows(one) for one in proof.proofs]
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


def _distribute(ranges: list[_Rows], partitions: Any, offsets: Any, hashes: Any, *, keeps: bool) -> int:
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


def _check_rows(rows: _Rows, name: str, report: Report) -> None:
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


# --- the topic -------------------------------------------------------------------------------------------


class _Topic:
    """Compares the rows of a range with the records that the topic has there now."""

    def __init__(self, topic: LakeTopic, snapshot: Snapshot) -> None:
        self._topic = topic
        self._topic_id = snapshot.topic_id
        self._logs: dict[int, Log] = topic.logs(snapshot.topic_id)
        self._is_compacted = topic.is_compacted()

    def compare(self, rows: _Rows, name: str, report: Report) -> None:
        while (span := self._reach(rows.proof.span)) is not None:
            try:
                records, record_hashes = self._records(span, "read_committed")
                break
            except DataLost:  # retention was quicker
                self._logs = self._topic.logs(self._topic_id)
        else:
            return
        offsets = np.concatenate(rows.offsets) if rows.offsets else np.zeros(0, np.int64)
        hashes = np.concatenate(rows.hashes) if rows.hashes else np.zeros(0, np.uint64)
        inside = (offsets >= span.start) & (offsets < span.end)
        offsets, hashes = offsets[inside], hashes[inside]
        both, at_rows, at_records = np.intersect1d(offsets, records, return_indices=True)
        is_equal = hashes[at_rows] == record_hashes[at_records]
        report.compared += int(is_equal.sum())
        self._report(report, Fault.RECORD_DIFFERS, "differs from the topic", both[~is_equal], span, name)
        lost = np.setdiff1d(records, both)
        self._report(report, Fault.LOST_RECORD, "is in the topic, but not in the table", lost, span, name)
        extra = np.setdiff1d(offsets, both)
        if self._is_compacted:
            report.compacted += len(extra)
        else:
            text = "is in the table, but not in the topic"
            self._report(report, Fault.EXTRA_ROW, text, extra, span, name)
        unseen = span.size - len(np.union1d(offsets, records))
        if unseen:
            everything, _ = self._records(span, "read_uncommitted")
            aborted = len(np.setdiff1d(everything, np.union1d(offsets, records)))
            report.aborted += aborted
            report.control += unseen - aborted

    def _reach(self, span: Span) -> Span | None:
        log = self._logs.get(span.partition, Log(0, 0))
        start, end = max(span.start, log.start), min(span.end, log.end)
        return Span(span.partition, start, end) if start < end else None

    def _records(self, span: Span, isolation_level: str) -> tuple[Any, Any]:
        offsets: list[Any] = [np.zeros(0, np.int64)]
        hashes: list[Any] = [np.zeros(0, np.uint64)]
        for table in self._topic.read(self._topic_id, span, isolation_level=isolation_level):
            offsets.append(table[OFFSET].to_numpy())
            hashes.append(row_hashes(table))
        return np.concatenate(offsets), np.concatenate(hashes)

    def _report(self, report: Report, fault: Fault, text: str, offsets: Any, span: Span, name: str) -> None:
        for offset in offsets[:FINDINGS_PER_RANGE_MAX].tolist():
            where = f"offset {offset} of partition {span.partition} {text}"
            at = Span(span.partition, offset, offset + 1)
            report.findings.append(Finding(fault, where, name, at))
        if len(offsets) > FINDINGS_PER_RANGE_MAX:
            more = f"{len(offsets) - FINDINGS_PER_RANGE_MAX} more of {span}: {text}"
            report.findings.append(Finding(fault, more, name, span))
