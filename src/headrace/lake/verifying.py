"""Checks a lake table: every row by the proofs in the files, every offset by the ledger, and the topic.

Without the topic: all files are there, their rows agree with their proofs in number and hash, and their
ranges are the ledger's, each offset once. With it: each record that the topic still has is in the table, as
it is in the topic. Offsets without a row are told apart: control records, aborted, compacted and lost ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from headrace.lake.dead_letter_check import DeadLetters
from headrace.lake.dead_letters import dead_letters_of
from headrace.lake.errors import NotALakeTable
from headrace.lake.file_check import check_file
from headrace.lake.formats import table_at
from headrace.lake.reading import read_rows
from headrace.lake.report import Report
from headrace.lake.table import Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.topic_comparison import TopicRecords
from headrace.lake.upsert_check import verify_upserts
from headrace.lake.values import ValueDecoder
from headrace.machines.lake.proof import Fault, FileProof, Finding, WrongFooter, check_ranges


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
    if snapshot.is_upsert:
        return verify_upserts(directory, snapshot, topic, on_file, decoder)
    report = Report()
    dead = read_dead_letters(directory, snapshot, report)
    against = None if topic is None else TopicRecords(topic, snapshot, decoder, dead)
    proofs: dict[str, FileProof] = {}
    for name, size in sorted(snapshot.files.items()):
        checked = check_file(directory / name, name, size, report, keeps=against is not None)
        if checked is not None:
            proofs[name] = checked.proof
            for rows in checked.ranges:
                if against is not None and not rows.proof.is_lost:
                    against.compare(rows, name, report)
            dead.compare(checked.proof, name, report)
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
    dead = dead_letters_of(table_at(directory), snapshot)
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
