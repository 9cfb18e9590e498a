"""What a check of a lake table has found, and the rows of one range while they are checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.lake.row_hash import added_up
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.proof import HASH_MASK, Fault, Finding, Proof

# Findings are for people: a table that lost a file of millions of rows must not fill the screen.
FINDINGS_PER_RANGE_MAX = 10


@dataclass(slots=True)
class Report:
    files: int = 0
    rows: int = 0
    dead_letters: int = 0  # records that are in the table of dead letters instead
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
class FileRows:
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


def report_offsets(
    report: Report, fault: Fault, text: str, offsets: Any, span: Span, name: str | None
) -> None:
    """Add a finding for each of the first offsets, and one for the rest."""
    for offset in offsets[:FINDINGS_PER_RANGE_MAX].tolist():
        where = f"offset {offset} of partition {span.partition} {text}"
        at = Span(span.partition, offset, offset + 1)
        report.findings.append(Finding(fault, where, name, at))
    if len(offsets) > FINDINGS_PER_RANGE_MAX:
        more = f"{len(offsets) - FINDINGS_PER_RANGE_MAX} more of {span}: {text}"
        report.findings.append(Finding(fault, more, name, span))
