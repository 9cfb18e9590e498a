"""Checks a table with the newest record of each key: each key once, and nothing but the newest.

Without the topic: the rows agree with the proofs in the files, and all files together with the totals of the
ledger. With it: the table has what the topic's records below the ledger leave, key by key. A record that a
newer one has replaced in the topic, behind the ledger, is not missing there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.threads.range_reader import DataLost
from headrace.lake.file_check import check_file
from headrace.lake.report import Report, report_offsets
from headrace.lake.row_hash import row_hashes
from headrace.lake.rows import KEY, OFFSET, PARTITION
from headrace.lake.table import Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.upserting import is_tombstone
from headrace.lake.values import ValueDecoder
from headrace.machines.lake.ledger import Held, Span
from headrace.machines.lake.plan import Log
from headrace.machines.lake.proof import Fault, FileProof, Finding, check_totals


class _Record(NamedTuple):
    offset: int
    hash: int
    is_deleted: bool = False


Records = dict[int, _Record]  # by the hash of partition and key


def verify_upserts(
    directory: Path,
    snapshot: Snapshot,
    topic: LakeTopic | None,
    on_file: Callable[[], None],
    decoder: ValueDecoder | None,
) -> Report:
    assert snapshot.totals is not None
    report = Report()
    rows: dict[int, Records] = {partition: {} for partition in snapshot.ledger}

    def note(table: pa.Table, hashes: Any) -> None:
        for partition, key, record in _records(table, hashes, np.zeros(table.num_rows, bool)):
            held = rows.setdefault(partition, {})
            if key in held:
                at = Span(partition, record.offset, record.offset + 1)
                text = f"offsets {held[key].offset} and {record.offset} of partition {partition} have one key"
                report.findings.append(Finding(Fault.TWICE, text, None, at))
            held[key] = record

    proofs: dict[str, FileProof] = {}
    for name, size in sorted(snapshot.files.items()):
        checked = check_file(
            directory / name, name, size, report, keeps=False, is_ordered=False, on_rows=note
        )
        if checked is not None:
            proofs[name] = checked.proof
        on_file()
    report.findings += check_totals(proofs, snapshot.ledger, snapshot.topic_id, snapshot.totals)
    if topic is not None:
        _compare(rows, snapshot, topic, decoder, report)
    return report


def _records(table: pa.Table, hashes: Any, is_deleted: Any) -> list[tuple[int, int, _Record]]:
    keys = row_hashes(table.select([PARTITION, KEY]))
    numbers = zip(
        table[PARTITION].to_pylist(),
        keys.tolist(),
        table[OFFSET].to_pylist(),
        hashes.tolist(),
        is_deleted.tolist(),
    )
    return [(partition, key, _Record(offset, hash, gone)) for partition, key, offset, hash, gone in numbers]


def _compare(
    rows: dict[int, Records],
    snapshot: Snapshot,
    topic: LakeTopic,
    decoder: ValueDecoder | None,
    report: Report,
) -> None:
    for partition, held in sorted(snapshot.ledger.items()):
        while True:
            log = topic.logs(snapshot.topic_id).get(partition, Log(0, 0))
            try:
                below, above = _topic_records(topic, snapshot, partition, held, log, decoder)
                break
            except DataLost:  # retention was quicker
                continue
        _compare_partition(rows[partition], below, above, Span(partition, log.start, held.next), report)


def _topic_records(
    topic: LakeTopic, snapshot: Snapshot, partition: int, held: Held, log: Log, decoder: ValueDecoder | None
) -> tuple[Records, set[int]]:
    """Return the newest records below the ledger, and the keys behind it."""
    below: Records = {}
    above: set[int] = set()
    start = max(log.start, held.start)
    for raw in topic.read(snapshot.topic_id, Span(partition, start, log.end)):
        deleted = raw["_value"].is_null().to_numpy()
        for (_, key, record), is_gone in zip(_records(raw, row_hashes(raw), deleted), deleted):
            if record.offset >= held.next:
                above.add(key)
            else:
                below[key] = record._replace(is_deleted=bool(is_gone))
        if decoder is not None:
            found = decoder.decode(raw, snapshot.schema).rows
            kept = found.filter(pc.less(found[OFFSET], held.next))
            typed = _records(kept, row_hashes(kept), is_tombstone(kept).to_numpy())
            below.update({key: record for _, key, record in typed})
    return below, above


def _compare_partition(rows: Records, below: Records, above: set[int], span: Span, report: Report) -> None:
    faults: dict[tuple[Fault, str], list[int]] = {}

    def note(fault: Fault, text: str, offset: int) -> None:
        faults.setdefault((fault, text), []).append(offset)

    for key, record in below.items():
        row = rows.get(key)
        if record.is_deleted:
            if row is not None:
                note(Fault.EXTRA_ROW, "is in the table, but a tombstone in the topic deletes it", row.offset)
            else:
                report.compared += 1
        elif row is None:
            note(Fault.LOST_RECORD, "is in the topic, but not in the table", record.offset)
        elif row.offset != record.offset:
            note(Fault.RECORD_DIFFERS, f"is not the newest of its key; {record.offset} is", row.offset)
        elif row.hash != record.hash:
            note(Fault.RECORD_DIFFERS, "differs from the topic", row.offset)
        else:
            report.compared += 1
    for key, row in rows.items():
        if key in below:
            continue
        if key in above:
            report.compacted += 1
        elif row.offset >= span.start:
            note(Fault.EXTRA_ROW, "is in the table, but not in the topic", row.offset)
    for (fault, text), offsets in faults.items():
        report_offsets(report, fault, text, np.array(sorted(offsets)), span, None)
