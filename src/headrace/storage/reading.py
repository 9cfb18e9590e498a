"""Reading a log: the bytes for a fetch, sizes of ranges, and searches by timestamp.

A read returns a `Span` of a file, no bytes. Recent batches are found in the tail in memory, older ones in the
index of their segment.
"""

from headrace.storage import timestamps
from headrace.storage.batch_opener import PATIENT, BatchOpener
from headrace.storage.disk import Span
from headrace.storage.errors import OffsetOutOfRange
from headrace.storage.log_producers import producer_state
from headrace.storage.log_state import LogState, guarded
from headrace.storage.timestamps import TimestampedOffset


def read(log: LogState, offset: int, *, max_bytes: int, limit_offset: int, at_least_one: bool) -> Span | None:
    """Whole batches of one segment, from the one that holds `offset`, all of them below `limit_offset`.

    None when nothing is there to read, or the first batch exceeds max_bytes and is not asked for all
    the same.
    """
    if log.status.error is not None:
        raise log.status.offline()
    end = log.log_end_offset
    if offset >= end or offset < log.log_start_offset:
        if offset == end:
            return None
        raise OffsetOutOfRange(offset, log.log_start_offset, end)
    tail = log.tail
    if tail.lasts and offset >= tail.first_offset:
        active = log.active
        found = tail.span(offset, limit_offset, active.size, max_bytes, at_least_one=at_least_one)
        if found is None:
            return None
        assert active.log is not None, "the tail is cleared when the file is released"
        return Span(active.log, found[0], found[1] - found[0])
    return _read_cold(log, offset, limit_offset, max_bytes, at_least_one)


@guarded
def _read_cold(
    log: LogState, offset: int, limit_offset: int, max_bytes: int, at_least_one: bool
) -> Span | None:
    if limit_offset <= offset:
        return None
    return log.segments.span(offset, limit_offset, log.log_end_offset, max_bytes, at_least_one=at_least_one)


def ends_in_later_segment(log: LogState, offset: int, limit_offset: int) -> bool:
    """Whether a read from `offset` ends with its segment though more follows below `limit_offset`."""
    if offset >= log.active.base_offset:
        return False
    return log.segments.number_of(offset) < log.segments.number_of(limit_offset)


@guarded
def bytes_between(log: LogState, offset: int, limit_offset: int) -> int:
    """Roughly how many bytes lie in [offset, limit_offset): exact where the tail reaches, else by the
    index.
    """
    if limit_offset <= offset:
        return 0
    segments = log.segments
    first, last = segments.number_of(offset), segments.number_of(limit_offset)
    between = sum(segment.measure() for segment in segments.items[first:last])
    return max(between + _position(log, last, limit_offset) - _position(log, first, offset), 0)


@guarded
def split_offsets(log: LogState, offset: int, limit_offset: int, part_bytes: int) -> list[int]:
    """Offsets that cut [offset, limit_offset) into parts of about so many bytes, as far as the indexes
    know: each is the first one of a batch, so that nobody opens a batch for its half.
    """
    if limit_offset <= offset:
        return []
    segments = log.segments
    first, last = segments.number_of(offset), segments.number_of(limit_offset)
    cuts: list[int] = []
    taken = 0  # bytes since the last cut
    for number in range(first, last + 1):
        segment = segments.items[number]
        segment.load()
        position = _position(log, number, offset) if number == first else 0
        end = _position(log, number, limit_offset) if number == last else segment.size
        if taken >= part_bytes:
            cuts.append(segment.base_offset)
            taken = 0
        while taken + end - position > part_bytes:
            cut = segment.index.first_cut(position, position + part_bytes - taken)
            if cut is None or cut[1] >= end:
                break
            cuts.append(cut[0])
            position, taken = cut[1], 0
        taken += max(end - position, 0)
    return sorted({cut for cut in cuts if offset < cut < limit_offset})


def _position(log: LogState, number: int, offset: int) -> int:
    """Roughly where `offset` lies in the segment of that number."""
    segment = log.segments.items[number]
    tail = log.tail
    if segment is log.active and tail.lasts and offset >= tail.first_offset:
        return tail.position(offset, segment.size)
    segment.load()
    if offset >= log.log_end_offset or not segment.size:
        return segment.size
    return segment.index.floor(offset)


@guarded
def offset_for_timestamp(
    log: LogState, timestamp_ms: int, limit_offset: int, opener: BatchOpener = PATIENT
) -> TimestampedOffset | None:
    """The first record at or after the timestamp, below `limit_offset`."""
    limit_offset = min(limit_offset, log.log_end_offset)
    return timestamps.first_since(
        log.segments.items, timestamp_ms, log.log_start_offset, limit_offset, opener
    )


@guarded
def max_timestamp(
    log: LogState, limit_offset: int, opener: BatchOpener = PATIENT
) -> TimestampedOffset | None:
    """The record with the largest timestamp, below `limit_offset`."""
    limit_offset = min(limit_offset, log.log_end_offset)
    return timestamps.largest(log.segments.items, log.log_start_offset, limit_offset, opener)


@guarded
def aborted_transactions(log: LogState, fetch_offset: int, upper_offset: int) -> list[tuple[int, int]]:
    """Producer id and first offset of every aborted transaction that touches [fetch_offset,
    upper_offset).
    """
    found: list[tuple[int, int]] = []
    for segment in log.segments.from_offset(fetch_offset):
        overlapping, is_complete = segment.transaction_index.overlapping(fetch_offset, upper_offset)
        found.extend((aborted.producer_id, aborted.first_offset) for aborted in overlapping)
        if is_complete:
            break
    return found


@guarded
def first_unstable_offset(log: LogState) -> int | None:
    """Where the oldest open transaction begins; None without one."""
    state = log.partition_producers.state or producer_state(log)
    first = state.first_open_offset
    return None if first is None else max(first, log.log_start_offset)


def last_stable_offset(log: LogState, high_watermark: int) -> int:
    """Up to where no transaction is open: read_committed sees what lies below."""
    state = log.partition_producers.state
    if state is None or state.open or state.undecided or log.status.error is not None:
        return _last_stable_offset(log, high_watermark)
    return max(high_watermark, log.log_start_offset)


@guarded
def _last_stable_offset(log: LogState, high_watermark: int) -> int:
    """The same, for a log with transactions, or whose producers are not loaded yet."""
    state = log.partition_producers.state or producer_state(log)
    return max(state.last_stable_offset(high_watermark), log.log_start_offset)
