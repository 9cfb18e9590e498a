"""Opening a log, with the recovery that its last stop asks for, and closing it."""

from contextlib import suppress

from headrace.storage import recovery as recovering
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.damage import Damage
from headrace.storage.directory_repair import repair_directory
from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.file_list import base_of
from headrace.storage.flushing import checkpoint
from headrace.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.log_state import LogState, guarded
from headrace.storage.partition_producers import PartitionProducers
from headrace.storage.recovery import Recovery
from headrace.storage.segment import TEMPORARY
from headrace.storage.swapping import finish_swaps
from headrace.storage.unfinished import drop_unfinished

COPIED_BYTES = 1024 * 1024


@guarded
def open_files(log: LogState, recovery: Recovery, wall_ms: int) -> None:
    """Where other replicas have what is missing, the list of files goes on naming it until the log is cut:
    this start may end before anybody knows of it. After a clean stop the list is right as it is.
    """
    if not _open_files(log, recovery, wall_ms):
        believes = recovery.is_listed and recovery.has_copies
        log.file_list.cover(believes=believes, is_durable=recovery.is_settled)


def _open_files(log: LogState, recovery: Recovery, wall_ms: int) -> bool:
    """Whether the log is as a clean stop left it."""
    found = repair_directory(log.disk, log.directory)
    # a process that was killed may not have come to its first flush
    log.is_unlisted = not found.bases or recovery.trust == "killed"
    segments = log.segments
    for base in found.bases:
        segments.add(base, wall_ms)
    log.partition_producers = PartitionProducers(log.disk, log.directory, segments, found.snapshots)
    start = recovery.log_start_offset
    if not found.bases:
        promised = recovery.recovery_point
        if recovery.trust == "killed":
            promised = max(promised, recovery.high_watermark)
        if recovery.is_list_exact:
            promised = max((promised, *map(base_of, log.file_list.read())))
        if promised > start:  # these offsets were given, and are not given to other records
            start = promised
            what = f"the segments before offset {start} are missing"
            log.damages.append(Damage(log.directory, what, recovery.log_start_offset))
        log.start_empty(max(start, 0), wall_ms)
        if recovery.has_copies and log.damages:
            log.lost_start = recovery.log_start_offset
        return False
    # what lies wholly before the log start was deleted already, but the deletion did not last
    log.remove_segments(segments.items[: segments.number_of(start)])
    if _lacks_beginning(log, recovery, segments.items[0].base_offset):
        _begin_again(log, max(start, recovery.recovery_point), wall_ms)
        return False
    is_clean = recovery.trust == "clean" and recovery.recovery_point >= found.bases[-1]
    is_clean = is_clean and (recovery.is_checked or _ends_at(log, recovery.recovery_point))
    if is_clean:
        log.log_end_offset = segments.active.limit_offset = recovery.recovery_point
    else:
        _recover(log, recovery, wall_ms)
    log.flushed_offset = min(max(recovery.recovery_point, segments.items[0].base_offset), log.log_end_offset)
    log.log_start_offset = max(start, segments.items[0].base_offset)
    log.active = segments.active
    if log.log_start_offset > log.log_end_offset:
        # records that were deleted on request were lost too: nothing is left that may be shown
        _begin_again(log, log.log_start_offset, wall_ms)
        return False
    return is_clean


def _lacks_beginning(log: LogState, recovery: Recovery, base_offset: int) -> bool:
    """Whether a lost host may have kept later segments without the first ones, which were not flushed. Where
    other replicas have what is missing, this one gets it from them: with its last segments alone it would
    count as in sync, and could lead. If retention has removed the first ones, the leader epochs begin where
    the log does.
    """
    is_doubtful = recovery.trust == "lost" and recovery.has_copies
    if not is_doubtful or base_offset <= max(recovery.log_start_offset, recovery.recovery_point):
        return False
    epochs = LeaderEpochs.read(log.disk, f"{log.directory}/{EPOCHS_FILE}")
    entries = epochs.entries() if epochs is not None else []
    return not entries or entries[0][1] < base_offset


def _begin_again(log: LogState, offset: int, wall_ms: int) -> None:
    log.remove_segments(log.segments.items)
    log.partition_producers.truncate(-1)
    log.epochs.note_recovered(offset, [])
    log.start_empty(offset, wall_ms)


def _ends_at(log: LogState, offset: int) -> bool:
    """Whether the log is what a clean stop leaves: its last batch ends at `offset`."""
    active = log.segments.active
    active.load()
    if not active.size:
        return active.base_offset == offset
    return active.last_batch_end() == offset


def _recover(log: LogState, recovery: Recovery, wall_ms: int) -> None:
    items = log.segments.items
    interval = log.config.index_interval_bytes
    has_gaps = "compact" in log.config.cleanup_policy
    if recovery.trust == "killed":
        scanned = recovering.recover_killed(
            items[-1],
            recovery.recovery_point,
            interval,
            has_gaps=has_gaps,
            high_watermark=recovery.high_watermark,
        )
    else:
        if recovery.is_cached_only:
            _write_again(log, recovery.recovery_point)
        log.remove_segments(recovering.overlapped(items))
        items = log.segments.items
        if not has_gaps:
            # a segment that is listed and missing was lost: no removal is to be finished
            is_settled = recovery.is_settled or (recovery.is_listed and _lacks_listed(log))
            first, damages = recovering.contiguous_from(items, recovery.recovery_point, is_settled=is_settled)
            log.damages += damages
            log.remove_segments(items[:first])
        scanned = recovering.recover_lost(
            log.segments.items, recovery.recovery_point, interval, has_gaps=has_gaps
        )
        log.remove_segments(scanned.removed)
    log.is_dirty = log.is_renamed = True
    log.damages += scanned.damages
    log.log_end_offset = scanned.end_offset
    trusted = scanned.end_offset
    if recovery.trust != "killed":
        # A snapshot behind it may be of records that were cut off: its removal did not last. Where the log
        # begins, its snapshot was durable before the records went.
        trusted = max(recovery.recovery_point, log.segments.items[0].base_offset)
    log.partition_producers.truncate(min(trusted, scanned.end_offset))
    if scanned.has_control:
        log.partition_producers.load(wall_ms, aborts_from=max(scanned.start_offset, recovery.recovery_point))
    log.epochs.note_recovered(scanned.end_offset, scanned.epochs)
    if recovery.trust != "killed":
        log.write_epochs()


def _lacks_listed(log: LogState) -> bool:
    return bool(log.file_list.read().difference(log.disk.list(log.directory)))


def _write_again(log: LogState, offset: int) -> None:
    """Bring what was not flushed to other pages: the kernel takes those that a failed fsync left behind
    for written, and the next fsync of them would succeed without having done anything.
    """
    with suppress(FileNotFoundError):  # first, as in a flush
        metadata = f"{log.directory}/{PARTITION_METADATA}"
        write_atomically(log.disk, metadata, read_whole(log.disk, metadata))
    for segment in log.segments.from_offset(offset):
        path = f"{segment.path}.log"
        old, new = log.disk.open(path), log.disk.open(path + TEMPORARY, create=True)
        try:
            new.truncate(0)
            position = 0
            while data := old.read(position, COPIED_BYTES):
                new.append(data)
                position += len(data)
            new.sync()
        finally:
            old.close()
            new.close()
        segment.forget_files()
        log.disk.rename(path + TEMPORARY, path)
    log.disk.sync_dir(log.directory)


def close(log: LogState, *, clean: bool) -> None:
    """Let go of all files. Clean: with complete indexes and a snapshot, ready for a flush and the clean
    marker.
    """
    if clean:
        _close_cleanly(log)
    for segment in log.segments.items:
        segment.forget_files()


@guarded
def _close_cleanly(log: LogState) -> None:
    drop_unfinished(log)
    finish_swaps(log, log.opened_ms)  # what was merged away is removed by the next start
    if not log.active.is_new:
        if log.active.is_loaded:
            log.active.hold()
            log.active.seal()
        checkpoint(log)
    log.is_renamed |= log.file_list.is_unsynced
