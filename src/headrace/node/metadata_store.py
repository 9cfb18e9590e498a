"""The metadata log's files on this node: appends, flushes, truncation, and snapshots.

It knows nothing about voters and epochs. At most one flush is under way, and the next one takes what came
since. A failed flush halts the node, because the state of the disk is unknown.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from headrace.base.ids import METADATA_TOPIC_ID
from headrace.base.time import Now
from headrace.machines.metadata.errors import BadMetadata
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_files import (
    METADATA_DIRECTORY,
    METADATA_TOPIC,
    UNFINISHED,
    NameSnapshotJob,
    SnapshotContent,
    SnapshotId,
    SnapshotJob,
    read_snapshot,
    remove_unfinished,
)
from headrace.node.ports import Once, Ports
from headrace.node.settings import LiveSettings, Settings
from headrace.records.batch import BatchHeader
from headrace.records.reader import batches as whole_batches
from headrace.storage.appending import must_roll
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.config import LogConfig
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE
from headrace.storage.disk import Disk, Span
from headrace.storage.errors import DiskFull, LogOffline, StorageError, is_transient
from headrace.storage.log import PartitionLog
from headrace.storage.segment_removal import Doomed

BATCH_BYTES_MAX = 2**31 - 1  # a decision is one batch, however many partitions it creates
FOR_EVER = -1

# Records after which a snapshot is written, however small they are: replaying one takes some 20 µs, so this
# keeps half a second's work for the next start. A start itself writes one for each partition that it leads.
RECORDS_BETWEEN_SNAPSHOTS = 25_000

Act = Callable[[Now], None]


class MetadataStore:
    __slots__ = (
        "_bytes_since_snapshot",
        "_deadlines",
        "_directories",
        "_flushed",
        "_is_installing",
        "_jobs",
        "_lifecycle",
        "_log",
        "_records_since_snapshot",
        "_reports",
        "_settings",
        "_snapshot_made",
        "_snapshot_wall_ms",
        "directory",
        "is_flushing",
        "is_making_snapshot",
    )

    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        ports: Ports,
        now: Now,
        *,
        flushed: Act,
        snapshot_made: Callable[[Now, SnapshotId], None],
    ) -> None:
        """Recovers the log. `flushed` is called when more of it is durable, `snapshot_made` when there is a
        new snapshot and the log begins at its end.
        """
        self._settings = settings
        self._directories = directories
        self.directory = directories.metadata_log_dir
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._flushed = flushed
        self._snapshot_made = snapshot_made
        self.is_flushing = False
        self.is_making_snapshot = False
        self._is_installing = False  # the leader's snapshot replaces the log: none is made of that
        self._snapshot_wall_ms = now.wall_ms
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = directories.sound_metadata.loaded.replayed
        self._log = self._open_log(now)
        self._sync_replayed()

    def _open_log(self, now: Now) -> PartitionLog:
        log_dir = self.directory
        directory = self._directories[log_dir]
        sound = self._directories.sound_metadata
        directory.vouch(METADATA_TOPIC, 0, sound.snapshot_end)
        if directory.topic_id_of(METADATA_TOPIC, 0) not in (None, METADATA_TOPIC_ID):
            # the log was found sound: another id in its directory is damage, and says nothing about it
            self._reports.damage(f"{log_dir}/{METADATA_DIRECTORY}/{PARTITION_METADATA}", "the topic's id")
            directory.correct_topic_id(METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        config = log_config(self._settings.current)
        log = directory.open_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, config, now.wall_ms)
        remove_unfinished(self.disk, METADATA_DIRECTORY)
        if sound.log_end_offset == sound.end_offset != log.log_end_offset:
            raise BadMetadata(
                f"the metadata log is intact up to offset {sound.end_offset}, but was recovered up to "
                f"{log.log_end_offset}"
            )
        if sound.log_end_offset < sound.end_offset:
            # The log begins again where the snapshot ends: a lost host kept it and lost segments it stands
            # for, whose removal had begun; or it came from the leader, and a kill left the old segments.
            start_over(log, sound.end_offset, now.wall_ms)
        return log

    def _sync_replayed(self) -> None:
        """A killed process may have left records in the page cache only. Topics that they remove are deleted
        by this start, and must not come back without their records when the host is lost.
        """
        job = self._log.flush_job()
        if job is None:
            return
        try:
            self._log.complete_flush(job.run(self.disk))
        except OSError as error:
            if not is_transient(error):
                self._directories.distrust(self.directory)
            raise

    # --- questions -----------------------------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        return self._directories.disks[self.directory]

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def read(self, offset: int, bytes_max: int) -> Span | None:
        """Whole batches from `offset` on, at least one if there is one."""
        return self._log.read(
            offset, max_bytes=bytes_max, limit_offset=self._log.log_end_offset, at_least_one=True
        )

    def read_snapshot(self, snapshot: SnapshotId, position: int, bytes_max: int) -> tuple[bytes, int]:
        """A piece of a snapshot's file, and the size of the whole. OSError: it is not there any more."""
        file = self.disk.open(f"{METADATA_DIRECTORY}/{snapshot.file}")
        try:
            return file.read(position, bytes_max), file.size()
        finally:
            file.close()

    # --- appends and truncation ----------------------------------------------------------------------------

    def append(self, now: Now, batches: bytes, records: int) -> None:
        """Batches with their offsets and epochs. DiskFull or LogOffline: nothing has changed."""
        view = memoryview(batches)
        end_offset = self._log.log_end_offset
        try:
            for position, header in whole_batches(view, check=False):
                if header.size > self._log.config.segment_bytes:  # a decision is one batch
                    self._log.configure(dataclasses.replace(self._log.config, segment_bytes=header.size))
                if self._log.flushed_offset < self._log.log_end_offset:
                    self._sync_before_roll(header, now.wall_ms)
                self._log.append_batches(view[position : position + header.size], wall_ms=now.wall_ms)
        except DiskFull:
            if self._log.log_end_offset > end_offset:  # of several batches the first ones had space
                self._take_back(now, end_offset)
            raise
        except LogOffline as error:
            self._directories.go_offline(now, self.directory, error)
            raise
        self._bytes_since_snapshot += len(batches)
        self._records_since_snapshot += records

    def _take_back(self, now: Now, end_offset: int) -> None:
        try:
            self._log.truncate_to(end_offset)
        except StorageError as error:
            self._directories.go_offline(now, self.directory, error)

    def _sync_before_roll(self, header: BatchHeader, wall_ms: int) -> None:
        """A new segment begins after everything before it is durable. So a lost host leaves torn batches at
        the end of the last segment only, and what is not intact anywhere else is damage (`metadata_check`).
        """
        log = self._log
        if not must_roll(log, log.active, header.size, header.last_offset, header.max_timestamp, wall_ms):
            return
        job = log.flush_job()
        assert job is not None, "something is not flushed"
        try:
            log.complete_flush(job.run(self.disk))
        except OSError as error:
            if is_transient(error):
                log.postpone_flush()
                raise DiskFull(str(error)) from error
            raise LogOffline(str(error)) from error

    def cut(self, now: Now, end_offset: int, then: Act) -> bool:
        """Cut off what was never committed, which may be flushed, at the end of a batch. True: it is done;
        else `then` is called when it is.
        """

        def cut(now: Now) -> None:
            if self._has_truncated(now, end_offset, cut):
                then(now)

        return self._promise_less(now, end_offset, cut) and self._has_truncated(now, end_offset, cut)

    def _promise_less(self, now: Now, end_offset: int, then: Act) -> bool:
        """Before what was flushed is removed, no checkpoint may promise it: none on disk, and none that is
        just being written, behind which this one waits. True: there is none; else `then` is called.
        """
        directory = self._directories[self.directory]
        try:
            job = directory.lower_job(METADATA_TOPIC, 0, end_offset)
        except LogOffline as error:  # another file of the directory has met an I/O error since
            self._directories.go_offline(now, self.directory, error)
            return False
        if job is None:
            return True

        def lowered(now: Now, result: Any) -> None:
            if isinstance(result, OSError) and is_transient(result):
                self._directories.is_full(self.directory, result)
                Once(self._deadlines, now.after_ms(RETRY_MS), again)
            elif isinstance(result, Exception):
                self._directories.go_offline(now, self.directory, result)
            else:
                then(now)

        def again(now: Now) -> None:
            if self._promise_less(now, end_offset, then):
                then(now)

        self._jobs.run(self.directory, CHECKPOINT_QUEUE, job, lowered)
        return False

    def _has_truncated(self, now: Now, end_offset: int, again: Act) -> bool:
        """False: there is no space for that, and `again` is called later; or the disk has failed."""
        try:
            self._log.truncate_to(end_offset)
        except DiskFull as error:
            self._wait_for_space(now, error, again)
            return False
        except StorageError as error:
            self._directories.go_offline(now, self.directory, error)
            return False
        assert self._log.log_end_offset == end_offset, "logs are truncated between batches"
        return True

    def _wait_for_space(self, now: Now, error: DiskFull, again: Act) -> None:
        self._directories.is_full(self.directory, error)
        Once(self._deadlines, now.after_ms(RETRY_MS), again)

    # --- flushes -------------------------------------------------------------------------------------------

    def flush(self, now: Now) -> None:
        """Order a flush of all that is appended, unless one is under way, which the next one follows."""
        if self.is_flushing or self._log.flushed_offset == self._log.log_end_offset:
            return
        try:
            job = self._log.flush_job()
        except LogOffline as error:  # what was committed last met an I/O error, or another log has since
            self._directories.go_offline(now, self.directory, error)
            return
        except DiskFull as error:
            self._postpone_flush(now, error)
            return
        assert job is not None, "something was appended"
        self.is_flushing = True
        self._jobs.run(self.directory, "metadata", job, self._flush_ended)

    def _flush_ended(self, now: Now, result: Any) -> None:
        if isinstance(result, OSError) and is_transient(result):
            self._postpone_flush(now, result)
            return
        self.is_flushing = False
        if isinstance(result, Exception):
            self._directories.go_offline(now, self.directory, result)
            return
        self._log.complete_flush(result)
        # the checkpoint that follows tells the next start how far the log has to be sound
        self._directories.offsets_moved()
        try:
            self._flushed(now)
        finally:  # what was appended meanwhile is flushed even after a mistake of ours
            self.flush(now)

    def _postpone_flush(self, now: Now, error: Exception) -> None:
        """Nothing was flushed, and nothing tried: no descriptor was left."""
        self._reports.report("error", "flush_postponed", directory=self.directory, error=str(error))
        self.is_flushing = True
        self._log.postpone_flush()
        Once(self._deadlines, now.after_ms(RETRY_MS), self._flush_again)

    def _flush_again(self, now: Now) -> None:
        self.is_flushing = False
        self.flush(now)

    # --- snapshots -----------------------------------------------------------------------------------------

    def snapshot_if_due(self, now: Now, committed_offset: int) -> None:
        settings = self._settings.current
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        by_size = self._bytes_since_snapshot >= settings.metadata_log_max_record_bytes_between_snapshots
        by_count = self._records_since_snapshot >= RECORDS_BETWEEN_SNAPSHOTS
        by_time = interval_ms > 0 and now.wall_ms - self._snapshot_wall_ms >= interval_ms
        if self.is_making_snapshot or self._is_installing or self._lifecycle.is_stopping:
            return
        if not (by_size or by_count or by_time):
            return
        self.is_making_snapshot = True
        self._begin_counting(now)
        job = SnapshotJob(METADATA_DIRECTORY, committed_offset, now.wall_ms)
        self._jobs.run(self.directory, "snapshot", job, self._snapshot_ended)

    def _begin_counting(self, now: Now) -> None:
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = 0
        self._snapshot_wall_ms = now.wall_ms

    def _snapshot_ended(self, now: Now, result: Any) -> None:
        self.is_making_snapshot = False
        if isinstance(result, Exception):
            # the log is still there and still whole; the next snapshot is tried after as many bytes again
            self._reports.report("error", "metadata_snapshot_failed", error=str(result))
            self._directories.job_failed(now, self.directory, result)
            return
        self._reports.report("info", "metadata_snapshot", end_offset=result.end_offset, epoch=result.epoch)
        doomed: list[Doomed] = []
        try:
            doomed = self._log.advance_log_start(result.end_offset, now.wall_ms)
        except LogOffline as error:
            self._directories.go_offline(now, self.directory, error)
            return
        except DiskFull:
            # The next snapshot frees what this one could not. If the log begins at its end all the same, who
            # needs what lies before has to be sent to the snapshot.
            if self._log.log_start_offset < result.end_offset:
                return
        self._snapshot_made(now, result)
        self._directories.remove_files(now, self.directory, self._log, doomed)

    def write_piece(self, snapshot: SnapshotId, position: int, piece: bytes) -> None:
        """A piece of the leader's snapshot. OSError: it could not be written."""
        file = self.disk.open(f"{METADATA_DIRECTORY}/{snapshot.file}{UNFINISHED}", create=True)
        try:
            file.truncate(position)
            file.append(piece)
        finally:
            file.close()

    def install_snapshot(
        self, now: Now, snapshot: SnapshotId, then: Callable[[Now, SnapshotContent | None], None]
    ) -> None:
        """All pieces are written: the log begins again where the snapshot ends. `then` gets what it holds;
        None: it cannot be read, and nothing has changed.
        """

        def ended(now: Now, content: SnapshotContent | None) -> None:
            self._is_installing = False
            then(now, content)

        def named(now: Now, result: Any) -> None:
            if isinstance(result, Exception):
                self._reports.report("error", "metadata_snapshot_failed", error=str(result))
                self._directories.job_failed(now, self.directory, result)
                ended(now, None)
                return
            content = self._content(snapshot)
            if content is None:
                ended(now, None)
            elif self._promise_less(now, 0, lambda now: replace(now, content)):
                replace(now, content)

        def replace(now: Now, content: SnapshotContent) -> None:
            try:
                start_over(self._log, snapshot.end_offset, now.wall_ms)
            except DiskFull as error:
                self._wait_for_space(now, error, lambda now: replace(now, content))
                return
            except StorageError as error:
                self._directories.go_offline(now, self.directory, error)
                return
            self._begin_counting(now)
            ended(now, content)

        self._is_installing = True
        self._jobs.run(self.directory, "snapshot", NameSnapshotJob(METADATA_DIRECTORY, snapshot), named)

    def _content(self, snapshot: SnapshotId) -> SnapshotContent | None:
        """None: it is damaged, or cannot be read."""
        try:
            return read_snapshot(self.disk, METADATA_DIRECTORY, snapshot)
        except (BadMetadata, OSError) as error:
            self._reports.report("error", "metadata_snapshot_failed", error=str(error))
            return None


def start_over(log: PartitionLog, offset: int, wall_ms: int) -> None:
    """Remove all records, durably: the log is empty, and begins at `offset`."""
    log.truncate_to(0)
    log.segments.drop(log.segments.items)
    log.start_empty(offset, wall_ms)


def log_config(settings: Settings) -> LogConfig:
    """Retention is the snapshots' business; segments are short enough that a snapshot can free one."""
    return LogConfig(
        segment_bytes=min(
            settings.metadata_log_segment_bytes, settings.metadata_log_max_record_bytes_between_snapshots
        ),
        segment_ms=settings.metadata_log_segment_ms,
        retention_ms=FOR_EVER,
        retention_bytes=FOR_EVER,
        max_message_bytes=BATCH_BYTES_MAX,
    )
