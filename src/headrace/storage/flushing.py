"""Flushing a log: what to sync, as a job, and what its result means.

A flush covers the log up to where it ended when the job was made. The job carries the log's generation:
when the log was truncated meanwhile, its result says nothing about what the offsets now hold, and is
dropped.
"""

from headrace.base.time import Instant, Now
from headrace.base.values import Value
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.disk import Disk
from headrace.storage.errors import is_transient
from headrace.storage.jobs import JobKind
from headrace.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from headrace.storage.log_state import LogState, guarded
from headrace.storage.snapshots import snapshot_path


class Flushed(Value):
    directory: str
    generation: int
    end_offset: int
    snapshots: list[int]  # offsets of those that are durable now


class FlushJob(Value):
    """Sync files, then the directories whose names changed."""

    directory: str
    generation: int
    end_offset: int
    files: list[str]
    directories: list[str]
    snapshots: list[int]  # of producer states, whose files are among them

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> Flushed:
        for path in self.files:
            try:
                file = disk.open(path)
            except FileNotFoundError:
                continue  # retention took the segment away since
            try:
                file.sync()
            finally:
                file.close()
        for path in self.directories:
            disk.sync_dir(path)
        return Flushed(self.directory, self.generation, self.end_offset, self.snapshots)


def flush_due_at(log: LogState, now: Now) -> Instant | None:
    """When flush.messages or flush.ms ask for a flush; None when they don't, or when the log is cut first."""
    if log.cut_offset is not None:
        return None
    return log.flush_policy.due_at(log.config, log.log_end_offset - log.flushed_offset, now)


def needs_flush(log: LogState, now: Now) -> bool:
    due_at = flush_due_at(log, now)
    return due_at is not None and due_at <= now.mono


@guarded
def flush_job(log: LogState) -> FlushJob | None:
    """Everything up to the present end, as a job; None when all of it is durable already.

    Of the active segment only the log is synced, since recovery can do without an index; a sealed one is
    synced whole, once.
    """
    if log.flushed_offset == log.log_end_offset and not log.is_dirty and not log.is_renamed:
        return None
    files: list[str] = []
    # a segment that was sealed at exactly the flushed offset has its indexes still to be synced
    for segment in log.segments.from_offset(log.flushed_offset - 1):
        if segment.is_new:
            continue
        files.append(segment.path + ".log")
        if segment is not log.active:
            files += (segment.index.path, segment.time_index.path)
        if len(segment.transaction_index):
            files.append(segment.transaction_index.path)
    snapshots = log.partition_producers.unsynced()
    files += [snapshot_path(log.directory, offset) for offset in snapshots]
    if log.is_dirty:
        files.append(f"{log.directory}/{EPOCHS_FILE}")
    directories = [log.directory] if log.is_renamed or log.is_unlisted or snapshots else []
    if log.is_unlisted:  # first: where a record is durable, it is known whose it is
        files.insert(0, f"{log.directory}/{PARTITION_METADATA}")
        directories.append(log.directory.rpartition("/")[0])
    if log.file_list.is_unsynced:
        files.append(log.file_list.path)
    log.is_dirty = log.is_renamed = log.is_unlisted = log.file_list.is_unsynced = False
    return FlushJob(log.directory, log.generation, log.log_end_offset, files, directories, snapshots)


@guarded
def flush_now(log: LogState) -> None:
    """Everything up to the present end, here and now, whatever jobs are under way."""
    postpone_flush(log)  # such a job has taken over what is to be synced, and may not have begun
    job = flush_job(log)
    assert job is not None
    try:
        complete_flush(log, job.run(log.disk))
    except OSError:
        postpone_flush(log)
        raise


def complete_flush(log: LogState, result: Flushed) -> None:
    """A flush came back. One that was ordered before a truncation says nothing about what came after. While
    a cut is announced, what it will cut off does not count: a checkpoint would promise it for what comes
    there later.
    """
    if result.generation != log.generation:
        return
    log.is_cut = False
    log.partition_producers.note_synced(result.snapshots)
    end = min(result.end_offset, log.log_end_offset)
    if log.cut_offset is not None:
        end = min(end, log.cut_offset)
    if end > log.flushed_offset:
        log.flushed_offset = end
    if log.flushed_offset == log.log_end_offset:
        log.unflushed_bytes = 0
    log.flush_policy.reset()


def postpone_flush(log: LogState) -> None:
    """A flush could not begin, because no file descriptor was free: the next one covers all of it."""
    log.is_dirty = log.is_renamed = log.is_unlisted = log.file_list.is_unsynced = True


def fail_flush(log: LogState, error: OSError) -> None:
    """Whatever was wrong, the bytes may be gone from memory and disk alike: never tried again."""
    if log.status.error is None:
        log.status.error = error


def checkpoint(log: LogState, wall_ms: int | None = None) -> None:
    """Index entries and producer state to their files, so that a restart has little to walk; not
    synced.
    """
    _checkpoint(log, log.opened_ms if wall_ms is None else wall_ms)


@guarded
def _checkpoint(log: LogState, wall_ms: int) -> None:
    if log.active.is_new or not log.active.is_loaded:
        return  # nothing was written since it was opened
    try:
        log.active.write_indexes()
        log.partition_producers.take_snapshot(log.log_end_offset, wall_ms)
        if log.epochs.is_read:
            log.write_epochs()
    except OSError as error:
        if not is_transient(error):
            raise  # else: nothing is lost, a restart walks a little more
