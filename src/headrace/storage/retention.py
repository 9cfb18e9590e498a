"""Retention of a log: segments go by age, by size, or because the log start was moved past them."""

from collections.abc import Sequence

from headrace.storage.config import LogConfig
from headrace.storage.errors import OffsetOutOfRange, is_transient
from headrace.storage.log_state import LogState, guarded
from headrace.storage.rolling import close_if_quiet, roll_if_old, roll_if_space
from headrace.storage.segment import UNLIMITED, Segment
from headrace.storage.segment_removal import Doomed, doom_segment, rename_away
from headrace.storage.swapping import finish_swaps


@guarded
def retire(
    log: LogState, wall_ms: int, *, high_watermark: int | None = None, may_wait: bool = False
) -> list[Doomed]:
    """Take out what retention lets go, after a new segment was begun if the active one is due."""
    finish_swaps(log, wall_ms)
    end = log.log_end_offset
    limit = end if high_watermark is None else min(high_watermark, end)
    segments = log.segments
    roll_if_old(log, wall_ms)
    close_if_quiet(log, wall_ms)
    count = _count_deletable(
        segments.items,
        log.config,
        log_start_offset=log.log_start_offset,
        log_end_offset=end,
        high_watermark=limit,
        wall_ms=wall_ms,
    )
    if count == len(segments) and not roll_if_space(log, wall_ms):
        count -= 1  # the active segment has to wait for the space that the others leave
    _doom(log, segments.items[:count], wall_ms, may_wait=may_wait)
    return log.take_doomed()


@guarded
def due_before(log: LogState, wall_ms: int, *, high_watermark: int) -> int:
    """Where the log would start if retention took out now what it may. Nothing is changed."""
    segments, end = log.segments.items, log.log_end_offset
    count = _count_deletable(
        segments,
        log.config,
        log_start_offset=log.log_start_offset,
        log_end_offset=end,
        high_watermark=min(high_watermark, end),
        wall_ms=wall_ms,
    )
    return max(log.log_start_offset, segments[count].base_offset if count < len(segments) else end)


@guarded
def segment_facts(log: LogState) -> list[tuple[int, int, int]]:
    """Of each segment: end offset, bytes, and the time of its newest record."""
    segments = log.segments.items
    facts = []
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
        facts.append((end, segment.measure(), _newest_ms(segment)))
    return facts


@guarded
def prepare_log_start(log: LogState, offset: int, wall_ms: int) -> bool:
    """Records below `offset` are about to go. True: the snapshot of producers that stands for the segments
    before it is durable, so that the new start may be, too. False: a flush comes first.
    """
    if not log.log_start_offset < offset <= log.log_end_offset:
        return True
    log.active.load()
    if offset == log.log_end_offset and log.active.size:
        roll_if_space(log, wall_ms)
    segments = _segments_before(log, offset)
    if not segments:
        return True
    start = log.segments.items[len(segments)].base_offset
    if log.partition_producers.outlive(start, wall_ms, may_wait=True):
        return True
    log.is_renamed = True  # so that there is a flush
    return False


@guarded
def advance_log_start(log: LogState, offset: int, wall_ms: int) -> list[Doomed]:
    """Records below `offset` are gone (DeleteRecords); segments that hold nothing else go with them. They do
    not wait for a flush: the new start is durable already, and a start removes what lies before it. So
    `prepare_log_start` was called before; where it was not, this waits for the disk.
    """
    if offset > log.log_end_offset:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    if offset <= log.log_start_offset:
        return []
    _start_at(log, offset)  # first: it is durable already, whatever else there is no space for
    finish_swaps(log, wall_ms)
    log.active.load()
    if offset == log.log_end_offset and log.active.size:
        roll_if_space(log, wall_ms)
    _doom(log, _segments_before(log, offset), wall_ms, may_wait=False)
    return log.take_doomed()


@guarded
def finish_retiring(log: LogState, wall_ms: int) -> list[Doomed]:
    """A flush is done: take out the segments that waited for it, or wait for the next one."""
    offset, log.retires_before = log.retires_before, None
    if offset is not None:
        finish_swaps(log, wall_ms)
        _doom(log, _segments_before(log, offset), wall_ms, may_wait=True)
    return log.take_doomed()


def _segments_before(log: LogState, offset: int) -> list[Segment]:
    """Those that hold nothing from `offset` on; never the active one."""
    items = log.segments.items
    count = 0
    while count + 1 < len(items) and items[count + 1].base_offset <= offset:
        items[count].measure()
        count += 1
    return items[:count]


def _doom(log: LogState, segments: list[Segment], wall_ms: int, *, may_wait: bool) -> None:
    if not segments:
        return
    items = log.segments.items
    start = items[len(segments)].base_offset
    if not log.partition_producers.outlive(start, wall_ms, may_wait=may_wait):
        log.retires_before = start
        log.is_renamed = True  # so that there is a flush
        return
    log.file_list.drop(lambda base: base < start)
    doomed: list[Doomed] = []
    for segment in segments:
        try:
            doomed.append(doom_segment(log.disk, segment, log.config, wall_ms))
        except OSError as error:
            if not is_transient(error):
                raise
            break  # it stays, and so do those after it: a log has no gaps
        segment.forget_files()
    if not doomed:
        return
    log.doomed += doomed
    start = items[len(doomed)].base_offset
    log.segments.drop(segments[: len(doomed)])
    log.is_renamed = True
    if start > log.log_start_offset:
        _start_at(log, start)
    if len(doomed) < len(segments):
        # this cannot wait for a flush: the segments before it are gone
        log.partition_producers.outlive(start, wall_ms, may_wait=False)
    doomed[0].paths += rename_away(log.disk, log.partition_producers.forget_before(start))


def _start_at(log: LogState, offset: int) -> None:
    log.log_start_offset = offset
    log.lost_start = UNLIMITED
    log.epochs.read().truncate_start(offset)
    try:
        log.write_epochs()
    except OSError as error:
        if not is_transient(error):
            raise  # else: the next checkpoint writes it


def _count_deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    wall_ms: int,
) -> int:
    """How many segments, from the oldest on, are to go. All of them: then a new active one is due before.

    Nothing that reaches beyond the high watermark goes, and no empty segment.
    """
    deletes = "delete" in config.cleanup_policy
    excess = -1
    if deletes and config.retention_bytes >= 0:
        excess = sum(segment.measure() for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
        if end > high_watermark or end == segment.base_offset:
            break
        if end > log_start_offset or number + 1 == len(segments):
            if not deletes:
                break
            if not excess >= segment.measure() > 0 and not _is_expired(segment, config, wall_ms):
                break
        excess -= segment.measure()  # whatever it goes for, it takes that much away
        count += 1
    return count


def _is_expired(segment: Segment, config: LogConfig, wall_ms: int) -> bool:
    if config.retention_ms < 0:
        return False
    return wall_ms - _newest_ms(segment) > config.retention_ms


def _newest_ms(segment: Segment) -> int:
    """Records without timestamps are as old as our last write to the segment."""
    segment.load()
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms
