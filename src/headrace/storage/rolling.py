"""Rolling a log: when its active segment is full or old, the segment is sealed and a new one begins."""

from headrace.storage.errors import is_transient
from headrace.storage.file_list import log_name
from headrace.storage.log_state import LogState, guarded
from headrace.storage.segment import Segment
from headrace.storage.unfinished import drop_unfinished

# A log that was not written to for so long closes its file and forgets its tail: ten thousand partitions are
# never busy at once, and opening a file takes some ten microseconds.
QUIET_MS = 60_000

# A log that will be rolled within this time gets the files of its next segment ahead (`next_segment.py`). It
# is looked at more often.
AHEAD_MS = 20_000


def roll(log: LogState, wall_ms: int) -> None:
    """Seal the active segment and begin a new one, unless it is empty. Nothing lies behind the end of an
    empty one then: its files may be copied as they are.
    """
    if log.status.error is not None:
        raise log.status.offline()
    try:
        log.active.load()
        drop_unfinished(log)
        if log.active.size:
            roll_active(log, wall_ms)
        elif not log.active.is_new:
            log.active.hold()
    except OSError as error:
        raise log.status.met(error) from error


def roll_active(log: LogState, wall_ms: int, base_offset: int | None = None) -> None:
    drop_unfinished(log)
    sealed = log.active
    if not sealed.is_new:
        sealed.load()
        sealed.hold()
    sealed.seal()
    log.partition_producers.take_snapshot(log.log_end_offset, wall_ms)
    base_offset = log.log_end_offset if base_offset is None else base_offset
    new = Segment(log.disk, log.files, log.directory, base_offset, wall_ms, is_new=True)
    prepared, log.next_files = log.next_files, None
    new.create(prepared)
    sealed.release()
    log.segments.append(new)
    log.active = new
    log.tail.clear()
    log.is_renamed = True
    log.file_list.add(log_name(base_offset))
    if log.rolled is not None and wall_ms - sealed.created_ms < AHEAD_MS:
        log.rolled()


@guarded
def roll_if_old(log: LogState, wall_ms: int) -> None:
    """Rolls the active segment by segment.ms and max.compaction.lag.ms, also if nothing is written any
    more.
    """
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
    """Closes the file and drops the tail of a log without writes; the next append restores them."""
    active = log.active
    if active.log is not None and log.unfinished is None and wall_ms - active.modified_ms > QUIET_MS:
        active.write_indexes()
        active.release()
        log.tail.clear()
