"""Questions put to an open log, whose answers must be those of the model."""

from __future__ import annotations

from harness.batches import Batch, Row
from harness.log_model import LogModel, Stored, file_faults
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk
from headrace.storage.log import PartitionLog
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery, Trust

WALL_MS = 1_700_000_000_000


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    trust: Trust,
    *,
    recovery_point: int = 0,
    log_start: int = 0,
    wall_ms: int = WALL_MS,
) -> PartitionLog:
    return PartitionLog.open(
        disk,
        directory,
        config,
        files=OpenFiles(8),
        recovery=Recovery(trust, recovery_point, log_start),
        wall_ms=wall_ms,
    )


def last_offset(data: bytes) -> int:
    at, last = 0, -1
    while at < len(data):
        last = int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big")
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return last


def content(log: PartitionLog) -> bytes:
    """All that can be read, from the log start to the end, in reads of whole batches."""
    parts, offset, end = [], log.log_start_offset, log.log_end_offset
    while offset < end:
        span = log.read(offset, max_bytes=1 << 20, limit_offset=end, at_least_one=True)
        assert span is not None, f"nothing at {offset}, though the log ends at {end}"
        parts.append(span.read())
        last = last_offset(parts[-1])
        assert last >= offset
        offset = last + 1
    return b"".join(parts)


def bytes_from(start: int, batches: list[Stored]) -> bytes:
    return b"".join(stored.data for stored in batches if stored.end > start)


def prefix_that_is(log: PartitionLog, batches: list[Stored]) -> list[Stored] | None:
    """The batches that the log holds, if they are a prefix of these."""
    end = log.log_end_offset
    kept = [stored for stored in batches if stored.end <= end]
    if (kept[-1].end if kept else 0) != end:
        return None
    return kept if content(log) == bytes_from(log.log_start_offset, kept) else None


def judge(
    log: PartitionLog, model: LogModel, disk: Disk, *, wall_ms: int = WALL_MS, is_damaged: bool = False
) -> None:
    """Everything the model knows: bytes, files, timestamps, who wrote what. Appends to both in the end."""
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
    assert content(log) == bytes_from(model.start, model.batches)
    if not is_damaged:
        assert file_faults(disk, log.directory) == []
    rows = model.visible_rows(model.end)
    for row in rows:
        found = log.offset_for_timestamp(row.timestamp, model.end)
        expected = next(one for one in rows if one.timestamp >= row.timestamp)
        assert found is not None
        assert (found.offset, found.timestamp) == (expected.offset, expected.timestamp)
    producers = model.producers()
    for producer, batches in producers.items():
        for stored in batches:
            repeated = log.append(stored.batch.sent(), wall_ms=wall_ms, leader_epoch=0)
            assert repeated.is_duplicate, f"producer {producer}: batch at {stored.base} is not known"
            assert repeated.base_offset == stored.base
    for producer, batches in producers.items():
        newest = batches[-1].batch
        sequence = newest.base_sequence + len(newest.rows)
        batch = Batch([Row(wall_ms, None, b"next")], 0, producer, newest.producer_epoch, sequence)
        stored = model.append(batch, 0)
        appended = log.append(batch.sent(), wall_ms=wall_ms, leader_epoch=0)
        assert (appended.base_offset, appended.is_duplicate) == (stored.base, False)
    plain = model.append(Batch([Row(wall_ms, None, b"after")]), 0)
    assert log.append(plain.batch.sent(), wall_ms=wall_ms, leader_epoch=0).base_offset == plain.base
    assert content(log) == bytes_from(model.start, model.batches)
