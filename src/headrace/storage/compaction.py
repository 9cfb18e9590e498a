"""Compaction of a log (cleanup.policy compact): old records go once newer ones of the same key have come.

A pass is a job that works on sealed segments while appends and reads continue. The log accepts its result
only if it still has those segments. The modules of a pass are imported with the first pass, so that no start
waits for them.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.storage.cleanable import Dirt, find_dirt
from headrace.storage.log_producers import producer_state
from headrace.storage.log_state import LogState, guarded
from headrace.storage.reading import last_stable_offset
from headrace.storage.segment import Segment
from headrace.storage.segment_removal import Doomed
from headrace.storage.swapping import has_segments, swap_all, withdraw_swaps

if TYPE_CHECKING:
    from headrace.storage.cleaning import Cleaned, CleanJob, Limits, Source

# log.cleaner.dedupe.buffer.size times log.cleaner.io.buffer.load.factor, as they are by default
MAP_BYTES = 120_795_955
# log.cleaner.io.buffer.size, and what it is at least: several batches of usual size
IO_BYTES = 512 * 1024
IO_BYTES_MIN = 64 * 1024


@guarded
def dirt(log: LogState, wall_ms: int, high_watermark: int) -> Dirt | None:
    """What compaction could take up now; None without any, and for a log that is not compacted."""
    if "compact" not in log.config.cleanup_policy or len(log.segments) < 2:
        return None
    limit = min(last_stable_offset(log, high_watermark), log.flushed_offset)
    return find_dirt(log.segments.items, log.config, log.first_dirty_offset, limit, wall_ms)


def clean_job(
    log: LogState,
    wall_ms: int,
    high_watermark: int,
    *,
    map_bytes: int = MAP_BYTES,
    io_bytes: int = IO_BYTES,
    bytes_per_second: float | None = None,
) -> "CleanJob | None":
    """A pass over all that may be cleaned, when enough of it is dirty or has been for too long."""
    found = dirt(log, wall_ms, high_watermark)
    if found is None or log.unfinished_swaps or not found.is_due(log.config):
        return None
    from headrace.storage.cleaning import Limits

    config = log.config
    limits = Limits(
        config.segment_bytes,
        config.segment_index_bytes,
        config.index_interval_bytes,
        map_bytes,
        max(io_bytes, IO_BYTES_MIN),
    )
    return _clean_job(log, found, wall_ms, limits, bytes_per_second)


@guarded
def _clean_job(
    log: LogState, dirt: Dirt, wall_ms: int, limits: "Limits", bytes_per_second: float | None
) -> "CleanJob":
    from headrace.storage.batch_compaction import Rules
    from headrace.storage.cleaning import CleanJob

    segments = log.segments.items
    return CleanJob(
        log.directory,
        log.generation,
        [
            _source(segment, following)
            for segment, following in pairwise(segments)
            if following.base_offset <= dirt.end_offset
        ],
        dirt.first_offset,
        [one.transaction_index.path for one in segments if len(one.transaction_index)],
        Rules(
            log.log_start_offset,
            {entry.producer_id: (entry.last_offset, entry.epoch) for entry in producer_state(log, wall_ms)},
            wall_ms,
            log.config.delete_retention_ms,
        ),
        limits,
        bytes_per_second,
    )


def _source(segment: Segment, following: Segment) -> "Source":
    from headrace.storage.cleaning import Source

    segment.load()
    return Source(
        segment.base_offset,
        following.base_offset,
        segment.size,
        segment.index_entries * segment.time_index.entry_bytes,
        len(segment.transaction_index) > 0,
    )


@guarded
def complete_cleaning(log: LogState, result: "Cleaned", wall_ms: int) -> list[Doomed]:
    """Put new segments in the place of the old ones, unless the log has changed under them."""
    if result.generation != log.generation or not all(has_segments(log, one) for one in result.segments):
        withdraw_swaps(log.disk, log.directory, [one.base_offset for one in result.segments])
        return []
    log.first_dirty_offset = max(log.first_dirty_offset, result.first_dirty_offset)
    swap_all(log, result.segments, wall_ms)
    return log.take_doomed()
