"""Rolling a log: when its active segment is full or old, the segment is sealed and a new one begins."""

from headrace.base.numbers import INT32_MAX
from headrace.storage.errors import RecordListTooLarge, is_transient
from headrace.storage.log_state import LogState, guarded
from headrace.storage.segment import Segment

# A log that was not written to for so long closes its file and forgets its tail: ten thousand partitions are
# never busy at once, and opening a file takes some ten microseconds.
QUIET_MS = 60_000


def roll(log: LogState, wall_ms: int) -> None:
    """Seal the active segment and begin a new one, unless it is empty."""
    if log.health.error is not None:
        raise log.health.offline()
    try:
        log.active.load()
        if log.active.size:
            roll_active(log, wall_ms)
    except OSError as error:
        raise log.health.met(error) from error


def roll_active(log: LogState, wall_ms: int, base_offset: int | None = None) -> None:
    sealed = log.active
    if not sealed.is_new:
        sealed.load()
        sealed.hold()
    sealed.seal()
    log.partition_producers.take_snapshot(log.log_end_offset, wall_ms)
    base_offset = log.log_end_offset if base_offset is None else base_offset
    new = Segment(log.disk, log.files, log.directory, base_offset, wall_ms, is_new=True)
    new.create()
    sealed.release()
    log.segments.append(new)
    log.active = new
    log.tail.clear()
    log.is_renamed = True


def must_roll(
    log: LogState, active: Segment, size: int, last_offset: int, max_timestamp: int, wall_ms: int
) -> bool:
    config = log.config
    if active.size + size > config.segment_bytes:
        if size > config.segment_bytes:
            raise RecordListTooLarge(
                f"the batch has {size} bytes, more than segment.bytes={config.segment_bytes}"
            )
        return True
    if not active.size:
        return False
    if last_offset - active.base_offset > INT32_MAX:
        return True
    first = active.first_timestamp
    waited_ms = max_timestamp - first if first >= 0 <= max_timestamp else wall_ms - active.created_ms
    return (
        waited_ms > log.roll_ms
        or (active.index_entries + 1) * active.time_index.entry_bytes > config.segment_index_bytes
    )


@guarded
def roll_if_old(log: LogState, wall_ms: int) -> None:
    """segment.ms and max.compaction.lag.ms hold for a topic that nobody writes to any more."""
    active = log.active
    active.load()
    if not active.size:
        return
    since = active.first_timestamp if active.first_timestamp >= 0 else active.created_ms
    if wall_ms - since > log.roll_ms:
        roll_if_space(log, wall_ms)


def roll_if_space(log: LogState, wall_ms: int) -> bool:
    """A full disk must not keep retention from making room."""
    try:
        roll_active(log, wall_ms)
    except OSError as error:
        if not is_transient(error):
            raise
        return False
    return True


def close_if_quiet(log: LogState, wall_ms: int) -> None:
    """A log that nobody writes to needs no open file and no tail; the next append has them back."""
    active = log.active
    if active.log is not None and wall_ms - active.modified_ms > QUIET_MS:
        active.write_indexes()
        active.release()
        log.tail.clear()
