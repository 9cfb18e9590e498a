"""What each file of a lake table says about itself, and whether all files together are the whole history.

A file's footer has one `Proof` for each range of offsets in it: how many rows there are, and the sum of their
64-bit hashes. Sums of parts are the sum of the whole, so compaction adds proofs up instead of making new
ones: a row that it loses or changes no longer agrees with the sum.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from headrace.machines.lake.ledger import Ledger, Span

FOOTER_KEY = "headrace.proof"
FOOTER_VERSION = 1
HASH_MASK = (1 << 64) - 1
TOTAL_MASK = (1 << 63) - 1


class WrongFooter(ValueError):
    """A footer is missing, or is not one of ours."""


class Proof(NamedTuple):
    """The rows of one range of offsets in a file."""

    span: Span
    row_count: int  # offsets without a row: control records, aborted and compacted ones
    hash: int  # of all rows, added up; 64 bits
    is_lost: bool = False  # the topic had deleted the records before they were copied, and loss was allowed
    dead_count: int = 0  # records of the range that are in the table of dead letters instead
    dead_hash: int = 0  # of these rows, added up


class Totals(NamedTuple):
    """All rows of a table with upserts, whose files come and go."""

    row_count: int = 0
    hash: int = 0  # 63 bits, as much as a version of Delta has

    def moved(self, added: "Iterable[FileProof]", removed: "Iterable[FileProof]") -> "Totals":
        count, total = self
        for sign, files in ((1, added), (-1, removed)):
            for file in files:
                count += sign * file.row_count
                total += sign * sum(proof.hash for proof in file.proofs)
        return Totals(count, total & TOTAL_MASK)


class FileProof(NamedTuple):
    topic_id: str
    proofs: tuple[Proof, ...]

    @property
    def row_count(self) -> int:
        return sum(proof.row_count for proof in self.proofs)

    @property
    def dead_count(self) -> int:
        return sum(proof.dead_count for proof in self.proofs)

    def to_json(self) -> str:
        ranges = [
            [*proof.span, proof.row_count, f"{proof.hash:016x}", *_rest(proof)] for proof in self.proofs
        ]
        return json.dumps({"version": FOOTER_VERSION, "topic_id": self.topic_id, "ranges": ranges})

    @classmethod
    def from_json(cls, text: str | bytes) -> "FileProof":
        try:
            found = json.loads(text)
            if found["version"] != FOOTER_VERSION:
                raise WrongFooter(f"its version is {found['version']!r}, not {FOOTER_VERSION}")
            proofs = tuple(
                Proof(
                    Span(int(partition), int(start), int(end)), int(count), int(hash, 16), *_read_rest(rest)
                )
                for partition, start, end, count, hash, *rest in found["ranges"]
            )
            return cls(str(found["topic_id"]), proofs)
        except WrongFooter:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WrongFooter(f"it cannot be read: {error}") from error


def _rest(proof: Proof) -> list[str | int]:
    lost: list[str | int] = ["lost"] if proof.is_lost else []
    has_dead = proof.dead_count or proof.dead_hash
    return [*lost, "dead", proof.dead_count, f"{proof.dead_hash:016x}"] if has_dead else lost


def _read_rest(rest: list[str]) -> tuple[bool, int, int]:
    is_lost = rest[:1] == ["lost"]
    dead = rest[1:] if is_lost else rest
    return (is_lost, int(dead[1]), int(dead[2], 16)) if dead[:1] == ["dead"] else (is_lost, 0, 0)


def add_up(proofs: Iterable[Proof]) -> tuple[Proof, ...]:
    """Join the proofs of ranges that touch each other; lost ranges stay apart."""
    joined: list[Proof] = []
    for proof in sorted(proofs):
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.span.partition == proof.span.partition
            and last.span.end == proof.span.start
            and last.is_lost == proof.is_lost
        ):
            span = Span(proof.span.partition, last.span.start, proof.span.end)
            rows, total = last.row_count + proof.row_count, (last.hash + proof.hash) & HASH_MASK
            dead, dead_total = last.dead_count + proof.dead_count, last.dead_hash + proof.dead_hash
            joined[-1] = Proof(span, rows, total, proof.is_lost, dead, dead_total & HASH_MASK)
        else:
            joined.append(proof)
    return tuple(joined)


# --- findings --------------------------------------------------------------------------------------------


class Fault(StrEnum):
    """What `verify` can find; the names are those that scripts read."""

    FILE_MISSING = "file_missing"
    FILE_DAMAGED = "file_damaged"
    NO_PROOF = "no_proof"
    OTHER_TOPIC = "other_topic"
    GAP = "gap"
    TWICE = "twice"
    NOT_IN_LEDGER = "not_in_ledger"
    ROWS_MISSING = "rows_missing"
    ROWS_ADDED = "rows_added"
    ROWS_CHANGED = "rows_changed"
    LOST_RECORD = "lost_record"
    EXTRA_ROW = "extra_row"
    RECORD_DIFFERS = "record_differs"
    DEAD_LETTERS_DIFFER = "dead_letters_differ"


_OF_ONE_FILE = (Fault.OTHER_TOPIC, Fault.NOT_IN_LEDGER)


class Finding(NamedTuple):
    fault: Fault
    text: str
    file: str | None = None
    span: Span | None = None


def check_ranges(files: Mapping[str, FileProof], ledger: Ledger, topic_id: str) -> list[Finding]:
    """Compare the ranges of all files with the ledger: each offset once, none missing, none beyond."""
    findings = [
        Finding(Fault.OTHER_TOPIC, f"is of the topic with id {proof.topic_id}, not {topic_id}", name)
        for name, proof in sorted(files.items())
        if proof.topic_id != topic_id
    ]
    spans: dict[int, list[tuple[Span, str]]] = {partition: [] for partition in ledger}
    for name, file in sorted(files.items()):
        for proof in file.proofs:
            if proof.span.size > 0:
                spans.setdefault(proof.span.partition, []).append((proof.span, name))
    for partition, found in sorted(spans.items()):
        findings += _check_partition(partition, sorted(found), ledger)
    return findings


def check_totals(
    files: Mapping[str, FileProof], ledger: Ledger, topic_id: str, totals: Totals
) -> list[Finding]:
    """Compare the files of a table with upserts with its totals; which offsets it has, nobody can say."""
    findings = [each for each in check_ranges(files, ledger, topic_id) if each.fault in _OF_ONE_FILE]
    found = Totals().moved(files.values(), ())
    if found.row_count != totals.row_count:
        fault = Fault.ROWS_MISSING if found.row_count < totals.row_count else Fault.ROWS_ADDED
        text = f"the files have {found.row_count} rows, but the ledger says {totals.row_count}"
        findings.append(Finding(fault, text))
    elif found != totals:
        text = "the files have other rows than those of the ledger: their hashes differ"
        findings.append(Finding(Fault.ROWS_CHANGED, text))
    return findings


def _check_partition(partition: int, found: list[tuple[Span, str]], ledger: Ledger) -> list[Finding]:
    held = ledger.get(partition)
    if held is None:
        return [
            Finding(Fault.NOT_IN_LEDGER, f"has {span}, of which the ledger has nothing", name, span)
            for span, name in found
        ]
    findings = []
    at, last = held.start, ""
    for span, name in found:
        if span.start < held.start or span.end > held.next:
            text = f"has {span}, but the ledger stands at [{held.start}, {held.next})"
            findings.append(Finding(Fault.NOT_IN_LEDGER, text, name, span))
        if span.start > at:
            gap = Span(partition, at, span.start)
            findings.append(Finding(Fault.GAP, f"no file has {gap}", None, gap))
        elif span.start < at and last:
            twice = Span(partition, span.start, min(at, span.end))
            findings.append(Finding(Fault.TWICE, f"has {twice}, as {last} has", name, twice))
        if span.end > at:
            at, last = span.end, name
    if at < held.next:
        gap = Span(partition, at, held.next)
        findings.append(Finding(Fault.GAP, f"no file has {gap}", None, gap))
    return findings
