"""Comparison of a lake table's rows with the records that its topic has now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.threads.range_reader import DataLost
from headrace.lake.dead_letter_check import DeadLetters
from headrace.lake.report import FileRows, Report, report_offsets
from headrace.lake.row_hash import row_hashes
from headrace.lake.rows import OFFSET
from headrace.lake.table import Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.values import ValueDecoder
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.plan import Log
from headrace.machines.lake.proof import Fault


class TopicRecords:
    """Compares the rows of a range with the records that the topic has there now."""

    def __init__(
        self, topic: LakeTopic, snapshot: Snapshot, decoder: ValueDecoder | None, dead: DeadLetters
    ) -> None:
        assert (decoder is None) == (snapshot.values is None), "a table with typed columns has a decoder"
        self._decoder = decoder
        self._schema = snapshot.schema
        self._dead = dead
        self._topic = topic
        self._topic_id = snapshot.topic_id
        self._logs: dict[int, Log] = topic.logs(snapshot.topic_id)
        self._is_compacted = topic.is_compacted()

    def compare(self, rows: FileRows, name: str, report: Report) -> None:
        while (span := self._reach(rows.proof.span)) is not None:
            try:
                records, record_hashes = self._records(span)
                break
            except DataLost:  # retention was quicker
                self._logs = self._topic.logs(self._topic_id)
        else:
            return
        records, record_hashes = self._without_dead(records, record_hashes, span, name, report)
        offsets = np.concatenate(rows.offsets) if rows.offsets else np.zeros(0, np.int64)
        hashes = np.concatenate(rows.hashes) if rows.hashes else np.zeros(0, np.uint64)
        inside = (offsets >= span.start) & (offsets < span.end)
        offsets, hashes = offsets[inside], hashes[inside]
        both, at_rows, at_records = np.intersect1d(offsets, records, return_indices=True)
        is_equal = hashes[at_rows] == record_hashes[at_records]
        report.compared += int(is_equal.sum())
        report_offsets(report, Fault.RECORD_DIFFERS, "differs from the topic", both[~is_equal], span, name)
        lost = np.setdiff1d(records, both)
        report_offsets(report, Fault.LOST_RECORD, "is in the topic, but not in the table", lost, span, name)
        extra = np.setdiff1d(offsets, both)
        if self._is_compacted:
            report.compacted += len(extra)
        else:
            text = "is in the table, but not in the topic"
            report_offsets(report, Fault.EXTRA_ROW, text, extra, span, name)
        seen = np.union1d(np.union1d(offsets, records), self._dead.inside(span)[0])
        unseen = span.size - len(seen)
        if unseen:
            everything = self._offsets(span)
            aborted = len(np.setdiff1d(everything, seen))
            report.aborted += aborted
            report.control += unseen - aborted

    def _reach(self, span: Span) -> Span | None:
        log = self._logs.get(span.partition, Log(0, 0))
        start, end = max(span.start, log.start), min(span.end, log.end)
        return Span(span.partition, start, end) if start < end else None

    def _records(self, span: Span) -> tuple[Any, Any]:
        """Return offsets and hashes of the rows that the records of a range would be now."""
        offsets: list[Any] = [np.zeros(0, np.int64)]
        hashes: list[Any] = [np.zeros(0, np.uint64)]
        dead = pa.array(self._dead.inside(span)[0], pa.int64())
        for raw in self._topic.read(self._topic_id, span):
            offsets.append(raw[OFFSET].to_numpy())
            hashes.append(row_hashes(raw) if self._decoder is None else self._typed_hashes(raw, dead))
        return np.concatenate(offsets), np.concatenate(hashes)

    def _typed_hashes(self, raw: pa.Table, dead: pa.Array) -> Any:
        """Dead letters have the hashes of their bytes, as what cannot be decoded."""
        assert self._decoder is not None
        found = row_hashes(raw)
        is_dead = pc.is_in(raw[OFFSET], dead)
        rows = self._decoder.decode(raw.filter(pc.invert(is_dead)), self._schema).rows
        found[np.searchsorted(raw[OFFSET].to_numpy(), rows[OFFSET].to_numpy())] = row_hashes(rows)
        return found

    def _without_dead(
        self, records: Any, hashes: Any, span: Span, name: str, report: Report
    ) -> tuple[Any, Any]:
        """Compare the dead letters of a range with their records; return the other records."""
        dead, dead_hashes = self._dead.inside(span)
        both, at_dead, at_records = np.intersect1d(dead, records, return_indices=True)
        is_equal = dead_hashes[at_dead] == hashes[at_records]
        report.compared += int(is_equal.sum())
        text = "is a dead letter that differs from the topic"
        report_offsets(report, Fault.RECORD_DIFFERS, text, both[~is_equal], span, None)
        if not self._is_compacted:
            text = "is a dead letter, but not in the topic"
            report_offsets(report, Fault.EXTRA_ROW, text, np.setdiff1d(dead, both), span, None)
        is_row = ~np.isin(records, dead)
        return records[is_row], hashes[is_row]

    def _offsets(self, span: Span) -> Any:
        """Return the offsets of all records, also of those that were aborted."""
        tables = self._topic.read(self._topic_id, span, isolation_level="read_uncommitted")
        return np.concatenate([np.zeros(0, np.int64), *(table[OFFSET].to_numpy() for table in tables)])
