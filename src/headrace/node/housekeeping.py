"""Housekeeping of a broker: retention, recompression, compaction, recovery points, checkpoints.

Everything is done in slices, so that ten thousand partitions do not delay a request: a slice handles a few
partitions, then other work gets its turn. Work that waits for the disk is a job; work that computes runs in
another process.
"""

from collections.abc import Callable, Iterator
from typing import Any

from headrace.base.time import Now
from headrace.node.cleaner import Cleaner
from headrace.node.committed_offsets import CommittedOffsets
from headrace.node.log_directories import LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.next_segments import NextSegments
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Deadlines, Lifecycle, Ports
from headrace.node.retention import Retention
from headrace.node.settings import LiveSettings
from headrace.storage.errors import StorageError

# Partitions looked at in one go. Retention of one costs some 10 µs while nothing is due, but opening its log
# some 100 µs, and a segment that goes is renamed file by file: a slice stays around a millisecond.
RETENTION_SLICE = 8
PAUSE_BETWEEN_SLICES_MS = 1

# What was written since the last round is all that a lost host has to scan, and all that a restart has to
# walk for the state of producers.
RECOVERY_POINT_INTERVAL_MS = 5_000
CHECKPOINT_SLICE = 16


class Slices:
    """Walks over partitions a few at a time, then once more after the interval."""

    __slots__ = (
        "_act",
        "_after",
        "_deadlines",
        "_interval_ms",
        "_lifecycle",
        "_partitions",
        "_rest",
        "_size",
        "is_done",
    )

    def __init__(
        self,
        deadlines: Deadlines,
        lifecycle: Lifecycle,
        partitions: Callable[[], list[Partition]],
        size: int,
        interval_ms: int,
        act: Callable[[Now, Partition], None],
        after: Callable[[Now], None] | None = None,
    ) -> None:
        self._deadlines = deadlines
        self._lifecycle = lifecycle
        self._partitions = partitions
        self._size = size
        self._interval_ms = interval_ms
        self._act = act
        self._after = after  # each round
        self._rest: Iterator[Partition] | None = None
        self.is_done = False

    def start(self, now: Now, delay_ms: int) -> None:
        self._deadlines.add(now.after_ms(delay_ms), self)

    def walk(self, now: Now) -> None:
        """All of them in one go, out of turn."""
        for partition in self._partitions():
            self._look_at(now, partition)
        if self._after is not None:
            self._after(now)

    def _look_at(self, now: Now, partition: Partition) -> None:
        if not partition.is_deleted and not partition.is_offline:
            self._act(now, partition)

    def expired(self, now: Now) -> None:
        if self._lifecycle.is_stopping:
            return
        delay_ms = PAUSE_BETWEEN_SLICES_MS
        try:
            if self._rest is None:
                self._rest = iter(self._partitions())
            for _ in range(self._size):
                partition = next(self._rest, None)
                if partition is None:
                    self._rest, delay_ms = None, self._interval_ms
                    if self._after is not None:
                        self._after(now)
                    return
                self._look_at(now, partition)
        finally:  # a mistake with one of them must not end it for all
            self.start(now, delay_ms)


class Housekeeping:
    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        settings: LiveSettings,
        ports: Ports,
        metrics: Metrics,
        offsets: CommittedOffsets,
        now: Now,
    ) -> None:
        self._directories = directories
        self._jobs = ports.jobs
        self._reports = ports.reports
        deadlines, lifecycle, current = ports.deadlines, ports.lifecycle, settings.current
        interval_ms = current.log_retention_check_interval_ms
        retention = Retention(directories, offsets, ports.reports, self._recompress)
        self._retention = Slices(
            deadlines,
            lifecycle,
            partitions.all,
            RETENTION_SLICE,
            interval_ms,
            retention.look_at,
            after=retention.forget_gone,
        )
        self._retention.start(now, min(interval_ms, current.log_initial_task_delay_ms))
        self._next_segments = NextSegments(directories, ports)
        self._recovery_points = Slices(
            deadlines,
            lifecycle,
            partitions.dirty,
            CHECKPOINT_SLICE,
            RECOVERY_POINT_INTERVAL_MS,
            self._advance_recovery_point,
            after=directories.checkpoint,
        )
        self._recovery_points.start(now, RECOVERY_POINT_INTERVAL_MS)
        cleaner = Cleaner(partitions, directories, settings, ports, metrics)
        backoff_ms = current.log_cleaner_backoff_ms
        self._cleaning = Slices(
            deadlines,
            lifecycle,
            cleaner.partitions,
            RETENTION_SLICE,
            backoff_ms,
            cleaner.look_at,
            after=cleaner.start,
        )
        self._cleaning.start(now, backoff_ms)

    def look_after_all(self, now: Now) -> None:
        """A round of everything at once, however long it takes: for tests that moved the date."""
        for slices in (self._retention, self._cleaning, self._recovery_points):
            slices.walk(now)

    # --- recompression --------------------------------------------------------------------------------------

    def _recompress(self, partition: Partition) -> None:
        log = partition.log
        directory = partition.directory
        if log is None or not partition.config.sealed_compression_type:
            return
        if not self._directories.may_rewrite(directory):
            return
        job = log.recompress_job()
        if job is None:
            return
        self._directories.begin_rewrite(directory)

        def finished(now: Now, result: Any) -> None:
            self._directories.end_rewrite(directory)
            if isinstance(result, BaseException):
                self._reports.report(
                    "warning", "recompression_failed", directory=directory, error=str(result)
                )
                self._directories.job_failed(now, directory, result)
            elif partition.log is log:
                try:
                    log.complete_recompression(result)
                    self._directories.remove_segments(now, partition, log.take_doomed())
                except StorageError as fault:
                    self._directories.storage_failed(now, partition, fault)
                    return
                self._recompress(partition)

        self._jobs.run(directory, "rewriting", job, finished)

    # --- recovery points -----------------------------------------------------------------------------------

    def _advance_recovery_point(self, now: Now, partition: Partition) -> None:
        """Indexes and producer state to their files, then an fsync by the group commit. Meanwhile a job
        creates the files of the next segment, if it is time for them.
        """
        log = partition.log
        if log is None:
            return
        try:
            log.checkpoint(now.wall_ms)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            return
        self._next_segments.look_at(now, partition)
        self._directories.offsets_moved()
        self._directories.want_flush(now, partition)
