"""Searches for offsets by timestamp: one in the time index, one in the offset index, and a walk over at most
one interval of the log. Only the batch that has the result is opened, by a `BatchOpener`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.storage.batch_opener import BatchOpener
from headrace.storage.segment import Segment


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def first_since(
    segments: Sequence[Segment], timestamp: int, start_offset: int, limit_offset: int, opener: BatchOpener
) -> TimestampedOffset | None:
    """The first record in [start_offset, limit_offset) with this timestamp or a later one."""
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset:
            continue
        if segment.base_offset >= limit_offset:
            return None
        segment.load()
        if not segment.size or segment.max_timestamp < timestamp:
            continue
        found = _first_in(segment, timestamp, start_offset, limit_offset, opener)
        if found is not None:
            return found
    return None


def _first_in(
    segment: Segment, timestamp: int, start_offset: int, limit_offset: int, opener: BatchOpener
) -> TimestampedOffset | None:
    # Up to the offset that the last smaller time entry names, no batch has reached the timestamp: the walk
    # begins there. That entry's own word is all that counts. The two indexes may have been made at different
    # times and intervals (a segment that was rewritten, one that was indexed by half before a crash), so
    # that entries of one say nothing about entries of the other.
    before = segment.time_index.last_below(timestamp)
    position = segment.index.floor(max(before, start_offset - 1))
    for at, header in segment.headers(position):
        if header.base_offset >= limit_offset:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        found = opener.look(segment, at, header, timestamp, start_offset)
        if found is not None:
            return TimestampedOffset(*found, header.leader_epoch) if found[0] < limit_offset else None
    return None


def largest(
    segments: Sequence[Segment], start_offset: int, limit_offset: int, opener: BatchOpener
) -> TimestampedOffset | None:
    """The record with the largest timestamp in [start_offset, limit_offset), the first of them."""
    best: TimestampedOffset | None = None
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset:
            continue
        if segment.base_offset >= limit_offset:
            break
        segment.load()
        if best is not None and segment.max_timestamp <= best.timestamp:
            continue
        found = _largest_in(segment, start_offset, limit_offset, opener)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _largest_in(
    segment: Segment, start_offset: int, limit_offset: int, opener: BatchOpener
) -> TimestampedOffset | None:
    if segment.max_timestamp < 0:
        return None
    offset = segment.max_timestamp_offset
    if start_offset <= offset < limit_offset:
        placed = segment.locate(offset)
        position = placed[0] if placed else 0
        batches = segment.headers(position, position + 1 if placed is None else position + placed[1])
    else:
        batches = segment.headers(segment.index.floor(start_offset))
    best: TimestampedOffset | None = None
    for at, header in batches:
        if header.base_offset >= limit_offset:
            break
        if header.last_offset < start_offset or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        found = opener.look(segment, at, header, None, start_offset)
        if found is not None and start_offset <= found[0] < limit_offset:
            best = TimestampedOffset(*found, header.leader_epoch)
    return best
