"""Compaction of one batch: which of its records stay.

The newest record of each key stays. A tombstone stays until delete.retention.ms after the first pass that
read it, and so does the end marker of a transaction without any other records. The time at which they may be
removed is stored in the batch, as in Kafka: attribute bit 6 says that the base timestamp is the *delete
horizon*.

A batch keeps its offsets, sequences and codec, whichever records are removed. A batch that keeps all records
is not changed, nor is one that cannot be opened. The last batch of each active producer stays even without
records, because it has the producer's sequence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter

from headrace.records._codec import Row
from headrace.records.batch import BatchHeader
from headrace.records.builder import rebuild_batch
from headrace.records.errors import BadRecords
from headrace.records.reader import read_keys, read_rows
from headrace.storage.config import INT64_MAX
from headrace.storage.ended_transactions import EndedTransactions
from headrace.storage.partition_producers import end_marker_of
from headrace.storage.transaction_index import AbortedTransaction

_IS_TOMBSTONE = itemgetter(2)  # of offset, key, whether there is no value


@dataclass(slots=True)
class Rules:
    """What a pass goes by."""

    log_start_offset: int  # records below were deleted
    producers: Mapping[int, tuple[int, int]]  # living ones: offset of the last data (-1: none), epoch
    wall_ms: int
    delete_retention_ms: int


class BatchCompactor:
    __slots__ = (
        "_covered_to",
        "_newest",
        "_rules",
        "_transactions",
        "aborted",
        "records_kept",
        "records_met",
    )

    def __init__(
        self,
        rules: Rules,
        newest: Mapping[bytes | None, int],
        covered_to: int,
        aborted: list[AbortedTransaction],
    ) -> None:
        self._rules = rules
        self._newest = newest
        self._covered_to = covered_to
        self._transactions = EndedTransactions(aborted)
        self.aborted: list[AbortedTransaction] = []  # those whose marker stays and is still needed
        self.records_met = 0
        self.records_kept = 0

    def compact(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        """The batch as it stays, None when nothing of it does. Its checksum is right."""
        try:
            return (
                self._compact_control(batch, header)
                if header.is_control
                else self._compact_data(batch, header)
            )
        except BadRecords:
            return batch

    def _compact_data(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        self._transactions.note_data(header)
        self.records_met += header.record_count
        if header.base_offset >= self._covered_to:
            # its keys are not known yet: a horizon that began now would be over too early
            self.records_kept += header.record_count
            return batch
        is_aborted = self._transactions.is_aborted(header)
        is_needed = header.has_producer and self._is_last_of_producer(header)
        kept: list[bool] = []
        has_tombstone = False
        if not is_aborted and header.record_count:
            keys = read_keys(batch, 0, header)
            newest = self._newest.get
            kept = [newest(key, offset) <= offset for offset, key, _ in keys]
            start = self._rules.log_start_offset
            if header.base_offset < start:
                kept = [stays and row[0] >= start for stays, row in zip(kept, keys, strict=True)]
            if any(map(_IS_TOMBSTONE, keys)):
                if self._is_over(header):
                    kept = [stays and not row[2] for stays, row in zip(kept, keys, strict=True)]
                has_tombstone = any(map(_IS_TOMBSTONE, compress(keys, kept)))
        count = sum(kept)
        self.records_kept += count
        if not count:
            if not is_needed:
                return None
            return batch if not header.record_count else emptied(header)
        starts_horizon = has_tombstone and not header.has_delete_horizon
        if count == header.record_count and not starts_horizon:
            return batch
        rows = list(compress(read_rows(batch, 0, header), kept))
        return self._rebuilt(rows, header, starts_horizon=starts_horizon)

    def _compact_control(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        marker = end_marker_of(batch, header)
        if marker is None:
            return batch if header.record_count else None
        has_data = self._transactions.note_marker(header)
        if has_data:
            aborted = self._transactions.aborted_by(header)
            if aborted is not None:
                self.aborted.append(aborted)
        if has_data or header.base_offset >= self._covered_to or self._is_last_of_producer(header):
            return batch
        if header.has_delete_horizon:
            return None if self._is_over(header) else batch
        return self._rebuilt(read_rows(batch, 0, header), header, starts_horizon=True)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Its last data, or the only marker that has its epoch."""
        known = self._rules.producers.get(header.producer_id)
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return not header.is_control and header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _is_over(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._rules.wall_ms

    def _rebuilt(self, rows: list[Row], header: BatchHeader, *, starts_horizon: bool) -> bytes:
        rules = self._rules
        horizon = -1
        if starts_horizon:
            horizon = min(rules.wall_ms + rules.delete_retention_ms, INT64_MAX)
        elif header.has_delete_horizon:
            horizon = header.base_timestamp
        return rebuild_batch(
            rows,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            append_time=header.max_timestamp if header.is_log_append_time else -1,
            delete_horizon=horizon,
        )


def emptied(header: BatchHeader) -> bytes:
    """A batch without its records: it still says which offsets and sequences it had."""
    return rebuild_batch(
        (),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
