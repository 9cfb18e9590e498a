"""A log read as consumers read it, for tests that judge compaction."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from harness.batches import ABORT, CONTROL, HEADER, TRANSACTIONAL, Row, rows_of, split
from harness.log_judge import content
from headrace.storage.disk import Disk
from headrace.storage.log import PartitionLog

Keyed = dict[bytes, bytes]


def rows(log: PartitionLog, *, with_control: bool = False) -> list[Row]:
    """Every record, aborted or not, in the order of its offset; or only those of data."""
    found = []
    before = -1
    for batch in split(content(log)):
        base, _, _, _, _, attributes, delta = HEADER.unpack_from(batch)[:7]
        assert base > before, f"a batch at {base} after offset {before}"
        before = base + delta
        stored = rows_of(batch)
        offsets = [row.offset for row in stored]
        assert offsets == sorted(set(offsets)), "offsets rise inside a batch"
        assert all(base <= offset <= base + delta for offset in offsets)
        if with_control or not attributes & CONTROL:
            found += [row for row in stored if row.offset >= log.log_start_offset]
    return found


def committed_rows(log: PartitionLog) -> Iterator[Row]:
    """What a consumer with read_committed keeps, given the aborted transactions as in a fetch."""
    end = log.last_stable_offset(log.log_end_offset)
    aborted = sorted(log.aborted_transactions(log.log_start_offset, end), key=lambda one: one[1])
    aborting: set[int] = set()
    for batch in split(content(log)):
        base, _, _, _, _, attributes, delta, _, _, producer = HEADER.unpack_from(batch)[:10]
        if base >= end:
            return
        while aborted and aborted[0][1] <= base + delta:
            aborting.add(aborted.pop(0)[0])
        if attributes & CONTROL:
            stored = rows_of(batch)
            if stored and struct.unpack(">hh", stored[0].key or b"")[1] == ABORT:
                aborting.discard(producer)
        elif not (attributes & TRANSACTIONAL and producer in aborting):
            yield from (row for row in rows_of(batch) if row.offset >= log.log_start_offset)


def newest(log: PartitionLog) -> Keyed:
    """Key by key what a reader of the whole log ends up with."""
    state: Keyed = {}
    for row in committed_rows(log):
        assert row.key is not None
        if row.value is None:
            state.pop(row.key, None)
        else:
            state[row.key] = row.value
    return state


def clean(log: PartitionLog, disk: Disk, wall_ms: int, **options: int) -> bool:
    """One pass from its order to its end, if any is due."""
    job = log.clean_job(wall_ms, log.log_end_offset, **options)
    if job is None:
        return False
    for doomed in log.complete_cleaning(job.run(disk), wall_ms):
        doomed.remove_job().run(disk)
    return True
