"""Truncating a log: a follower removes what its leader does not have, or all of it to begin later.

No checkpoint may promise more than the log has: the lower recovery point has to be durable first
(`LogDirectory.lower_job`, or `lower_recovery_point` of the log). What is cut off must not come back between
records that are written later: the cut has to be durable before the next append. `truncate_to` does all of it
at once. `cut_to` and `start_over` leave both to jobs: the checkpoint before, a flush after.
"""

from headrace.storage.errors import DamagedBatch
from headrace.storage.flushing import flush_now
from headrace.storage.log_state import LogState, guarded
from headrace.storage.segment import Segment
from headrace.storage.segment_removal import Doomed, doom_segment
from headrace.storage.unfinished import drop_unfinished


@guarded
def truncate_to(log: LogState, offset: int) -> None:
    """Cut the log so that it ends at `offset`, or at the beginning of the batch that holds it; durable."""
    was_cut = log.is_cut
    if offset >= log.log_end_offset:
        log.cut_offset = None
        _forget_epochs(log)
        if was_cut:  # maybe by a call of this kind that met a lack of space or descriptors on the way
            flush_now(log)
        return
    if _promise_less(log, offset) and log.lower_recovery_point is not None:
        log.lower_recovery_point()
    log.is_cut = True
    _cut(log, offset, log.opened_ms, is_synced=True)
    log.is_cut = was_cut


@guarded
def promise_less(log: LogState, offset: int) -> bool:
    """Before a `cut_to`: nothing from `offset` on counts as flushed, until the log is cut or `keep_all` says
    that it is not; results of jobs that are under way are dropped. True when checkpoints on the disk may
    say otherwise.
    """
    if offset >= log.log_end_offset:
        return False
    log.cut_offset = offset
    return _promise_less(log, offset)


def keep_all(log: LogState) -> None:
    """No cut comes, although one was announced."""
    log.cut_offset = None


@guarded
def cut_to(log: LogState, offset: int, wall_ms: int) -> None:
    """Cut the log; the next flush makes it durable. Segments behind the cut are in `take_doomed`."""
    if offset >= log.log_end_offset:
        log.cut_offset = None
        _forget_epochs(log)
        return
    _promise_less(log, offset)
    log.is_cut = True
    _cut(log, offset, wall_ms, is_synced=False)


@guarded
def start_over(log: LogState, offset: int, wall_ms: int) -> None:
    """Remove all records: the log is empty and begins at `offset`. The next flush makes it durable."""
    _promise_less(log, 0)
    drop_unfinished(log)
    log.is_cut = True
    log.tail.clear()
    log.stamped_epoch = None
    log.segments.forget_readers()
    _remove(log, log.segments.items, wall_ms, is_synced=False)
    try:
        log.partition_producers.truncate(-1, is_synced=False)
    finally:
        log.start_empty(offset, wall_ms)
    log.epochs.read().truncate_end(-1)
    _finish(log)


def _promise_less(log: LogState, offset: int) -> bool:
    log.generation += 1
    log.retires_before = None  # retention looks again at what is left
    if offset >= log.flushed_offset:
        return False
    log.flushed_offset = max(offset, 0)
    log.first_dirty_offset = min(log.first_dirty_offset, log.flushed_offset)
    return True


def _cut(log: LogState, offset: int, wall_ms: int, *, is_synced: bool) -> None:
    drop_unfinished(log)
    log.tail.clear()
    log.stamped_epoch = None
    log.segments.forget_readers()
    # of a cut that met a full disk before, the files of the first segment may be gone already
    placed = _place(log, offset) if offset > log.segments.items[0].base_offset else None
    if placed is None:
        try:
            _remove(log, log.segments.items, wall_ms, is_synced=is_synced)
        finally:
            if not len(log.segments):
                log.start_empty(offset, wall_ms)
    else:
        segment, position, end = placed
        kept = log.segments.number_of(segment.base_offset) + 1
        _remove(log, log.segments.items[kept:], wall_ms, is_synced=is_synced)
        try:
            segment.truncate(position, end, is_synced=is_synced)
        except OSError:
            if not segment.is_loaded:
                # the segment is cut, and its indexes are not: to look for the place again would find none
                _end_at(log, end)
            raise
        log.active = segment
        log.log_end_offset = end
        log.partition_producers.truncate(end, is_synced=is_synced)
    log.epochs.read().truncate_end(log.log_end_offset)
    _finish(log)


def _place(log: LogState, offset: int) -> tuple[Segment, int, int]:
    """Where to cut, and where the log ends then; before damaged bytes if the offset lies in those, and behind
    all batches of the segment if those that followed are missing.
    """
    segment = log.segments.from_offset(offset)[0]
    segment.load()
    try:
        placed = segment.locate(offset)
    except DamagedBatch as damaged:
        return segment, damaged.position, offset
    if placed is None:
        return segment, segment.size, offset
    return segment, placed[0], min(segment.base_offset_at(placed[0]), offset)


def _remove(log: LogState, segments: list[Segment], wall_ms: int, *, is_synced: bool) -> None:
    end = log.log_end_offset
    doomed: list[Doomed] = []
    if segments:
        first = segments[0].base_offset
        log.file_list.drop(lambda base: base >= first)
    try:
        for segment in reversed(segments):  # what a crash leaves is a log without a gap
            doomed.append(doom_segment(log.disk, segment, log.config, wall_ms))
            segment.forget_files()
            log.segments.drop([segment])
            end = segment.base_offset
    finally:
        log.doomed += doomed
        if end < log.log_end_offset and len(log.segments):
            _end_at(log, end)
    if is_synced and doomed:
        for one in log.take_doomed():
            one.remove_job().run(log.disk)
        log.disk.sync_dir(log.directory)  # none of them may come back behind other records


def _end_at(log: LogState, end: int) -> None:
    """There may be no space to remove more. What is left is a whole log: before the cut is tried again,
    another leader epoch may begin, in which records are appended.
    """
    log.active = log.segments.items[-1]
    log.log_end_offset = end
    log.flushed_offset = min(log.flushed_offset, end)
    log.stamped_epoch = None
    log.is_dirty = log.is_renamed = True
    log.epochs.read().truncate_end(end)
    log.partition_producers.truncate(end, is_synced=False)


def _forget_epochs(log: LogState) -> None:
    """Of epochs that begin at the end there is no record."""
    log.partition_producers.remove_leftover()
    _forget_damages(log)
    log.epochs.read().truncate_end(log.log_end_offset)
    log.write_epochs()
    log.stamped_epoch = None


def _finish(log: LogState) -> None:
    _forget_damages(log)
    log.write_epochs()
    log.stamped_epoch = None
    log.flushed_offset = min(log.flushed_offset, log.log_end_offset)
    log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
    log.is_dirty = log.is_renamed = True
    log.cut_offset = None


def _forget_damages(log: LogState) -> None:
    """What lay behind the end is gone, and may be written again."""
    if log.damages:
        log.damages = [damage for damage in log.damages if damage.offset < log.log_end_offset]
        kept = {segment.base_offset for segment in log.segments.items if not segment.is_new}
        log.file_list.drop(lambda base: base >= log.log_end_offset and base not in kept)
