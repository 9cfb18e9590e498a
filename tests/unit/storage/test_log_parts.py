"""The parts of a log, each alone over a `LogState`: none needs another to have run before."""

from dataclasses import replace

import pytest

from headrace.records.builder import build_batch
from headrace.storage import (
    appending,
    compaction,
    flushing,
    opening,
    reading,
    recompression,
    retention,
    rolling,
    truncation,
)
from headrace.storage.config import LogConfig
from headrace.storage.disk import read_whole
from headrace.storage.disk_errors import DirectoryStatus
from headrace.storage.errors import LogOffline, OffsetOutOfRange
from headrace.storage.log_state import LogState
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery

WALL_MS = 1_700_000_000_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)


def a_batch(offset: int, key: bytes = b"k", value: bytes = b"v") -> bytes:
    return build_batch([(WALL_MS, key, value, ())], base_offset=offset, leader_epoch=2)


def written(*segments: list[bytes]) -> MemoryDisk:
    """Segments as files, one batch of one record per offset."""
    disk = MemoryDisk()
    disk.make_dir("t-0")
    offset = 0
    for batches in segments:
        disk.open(f"t-0/{offset:020d}.log", create=True).append(b"".join(batches))
        offset += len(batches)
    return disk


def opened(disk: MemoryDisk, config: LogConfig | None = None, *, end: int = 0) -> LogState:
    log = LogState(
        disk, "t-0", config or LogConfig(), files=OpenFiles(), status=DirectoryStatus(), wall_ms=WALL_MS
    )
    opening.open_files(log, Recovery("killed", recovery_point=end), WALL_MS)
    return log


THREE = [[a_batch(0), a_batch(1)], [a_batch(2), a_batch(3)], [a_batch(4)]]


def test_opening_finds_segments_and_offsets() -> None:
    log = opened(written(*THREE))
    assert [one.base_offset for one in log.segments.items] == [0, 2, 4]
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (0, 5, 0)
    opening.close(log, clean=True)
    assert log.active.log is None


def test_appending_writes_a_batch_and_moves_the_end() -> None:
    log = opened(MemoryDisk())
    appended = appending.append(log, memoryview(bytearray(a_batch(0))), wall_ms=WALL_MS, leader_epoch=2)
    assert (appended.base_offset, appended.last_offset, log.log_end_offset) == (0, 0, 1)
    appending.append_batches(log, memoryview(a_batch(7)), wall_ms=WALL_MS)
    assert log.log_end_offset == 8
    assert read_whole(log.disk, "t-0/00000000000000000000.log") == a_batch(0) + a_batch(7)


def test_reading_needs_no_append() -> None:
    log = opened(written(*THREE))
    span = reading.read(log, 3, max_bytes=1000, limit_offset=5, at_least_one=False)
    assert span is not None
    assert span.read() == a_batch(3)
    assert reading.bytes_between(log, 0, 5) == 5 * len(a_batch(0))
    assert reading.ends_in_later_segment(log, 1, 5)
    with pytest.raises(OffsetOutOfRange):
        reading.read(log, 6, max_bytes=1000, limit_offset=6, at_least_one=False)


def test_rolling_seals_the_active_segment_unless_it_is_empty() -> None:
    log = opened(written(*THREE))
    rolling.roll(log, WALL_MS)
    rolling.roll(log, WALL_MS)
    assert [one.base_offset for one in log.segments.items] == [0, 2, 4, 5]


def test_flushing_covers_the_log_up_to_its_end() -> None:
    log = opened(written(*THREE))
    job = flushing.flush_job(log)
    assert job is not None
    flushing.complete_flush(log, job.run(log.disk))
    assert log.flushed_offset == 5
    assert flushing.flush_job(log) is None


def test_retention_takes_the_oldest_segments() -> None:
    log = opened(written(*THREE), LogConfig(retention_bytes=3 * len(a_batch(0))))
    assert [one.base_offset for one in retention.retire(log, WALL_MS)] == [0]
    assert [one.base_offset for one in retention.advance_log_start(log, 4, WALL_MS)] == [2]
    assert log.log_start_offset == 4


def test_compaction_leaves_the_newest_record_of_a_key() -> None:
    batches = [a_batch(n, b"key", b"value %d" % n) for n in range(5)]
    log = opened(written(batches[:2], batches[2:4], batches[4:]), COMPACT, end=5)
    job = compaction.clean_job(log, WALL_MS, 5)
    assert job is not None
    compaction.complete_cleaning(log, job.run(log.disk), WALL_MS)
    span = reading.read(log, 0, max_bytes=1000, limit_offset=5, at_least_one=True)
    assert span is not None
    assert span.read() == batches[3]
    assert log.first_dirty_offset == 4


def test_recompression_packs_a_sealed_segment() -> None:
    batches = [a_batch(n, value=b"v" * 1000) for n in range(3)]
    log = opened(written(batches[:2], batches[2:]), LogConfig(sealed_compression_type="zstd"), end=3)
    before = log.size_bytes
    job = recompression.recompress_job(log)
    assert job is not None
    recompression.complete_recompression(log, job.run(log.disk))
    assert log.size_bytes < before
    assert recompression.recompress_job(log) is None


def test_truncation_cuts_at_an_offset() -> None:
    log = opened(written(*THREE))
    truncation.truncate_to(log, 3)
    assert [one.base_offset for one in log.segments.items] == [0, 2]
    assert (log.log_end_offset, log.generation) == (3, 1)


def test_every_part_refuses_a_log_whose_disk_has_failed() -> None:
    log = opened(written(*THREE))
    log.status.error = OSError("broken")
    log.configure(replace(log.config, retention_bytes=1))
    calls = [
        lambda: appending.append(log, memoryview(bytearray(a_batch(5))), wall_ms=WALL_MS, leader_epoch=2),
        lambda: reading.read(log, 0, max_bytes=1, limit_offset=5, at_least_one=True),
        lambda: rolling.roll(log, WALL_MS),
        lambda: flushing.flush_job(log),
        lambda: retention.retire(log, WALL_MS),
        lambda: compaction.dirt(log, WALL_MS, 5),
        lambda: recompression.recompress_job(log),
        lambda: truncation.truncate_to(log, 1),
    ]
    for call in calls:
        with pytest.raises(LogOffline):
            call()
