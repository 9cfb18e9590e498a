"""Dirty part of a log: what compaction may rewrite, and how much of the log that is.

    0 ─────────── first dirty offset ─────────── end ────────── … active segment
        clean          dirty: the next pass              not yet

Only sealed segments that are completely below the last stable offset and below the last flush are compacted:
a newer record that a power failure could lose must not remove an older one. A segment whose newest record is
younger than min.compaction.lag.ms is not compacted, and neither is any after it.
"""

from itertools import pairwise

from headrace.base.values import Value
from headrace.storage.config import INT64_MAX, LogConfig
from headrace.storage.segment import Segment


class Dirt(Value):
    first_offset: int
    end_offset: int
    ratio: float  # dirty bytes of all that could be cleaned
    is_overdue: bool  # by max.compaction.lag.ms

    def is_due(self, config: LogConfig) -> bool:
        return self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio


def find_dirt(
    segments: list[Segment], config: LogConfig, first_dirty_offset: int, limit_offset: int, wall_ms: int
) -> Dirt | None:
    """What the next pass would take up; None when there is nothing. Everything below `limit_offset` is
    decided and durable.
    """
    first_dirty_offset = max(first_dirty_offset, segments[0].base_offset)
    end_offset = clean_bytes = dirty_bytes = 0
    oldest_ms = INT64_MAX
    for segment, following in pairwise(segments):
        if following.base_offset > limit_offset:
            break
        if following.base_offset <= first_dirty_offset:
            clean_bytes += segment.measure()
            continue
        if config.min_compaction_lag_ms > 0 and wall_ms - _newest_ms(segment) < config.min_compaction_lag_ms:
            break
        dirty_bytes += segment.measure()
        end_offset = following.base_offset
        if config.max_compaction_lag_ms < INT64_MAX:
            segment.load()
            if segment.first_timestamp >= 0:
                oldest_ms = min(oldest_ms, segment.first_timestamp)
    if not dirty_bytes:
        return None
    return Dirt(
        first_dirty_offset,
        end_offset,
        dirty_bytes / (clean_bytes + dirty_bytes),
        wall_ms - oldest_ms > config.max_compaction_lag_ms,
    )


def _newest_ms(segment: Segment) -> int:
    segment.load()
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms
