"""What a node does without being asked: opening logs, retention, recovery points, recompression, compaction,
checkpoints.

Everything here is done in slices, so that ten thousand partitions never hold up a request: a slice looks at
a few partitions, then gives way. What waits for the disk is a job; what computes runs in another process.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.node.cleaner import Cleaner
from headrace.node.partition import Partition
from headrace.storage.directory_jobs import CHECKPOINT_LANE
from headrace.storage.errors import StorageError
from headrace.storage.jobs import Job

if TYPE_CHECKING:
    from headrace.node.node import Node

# Partitions looked at in one go. Retention of one costs some 10 µs while nothing is due, but opening its log
# some 100 µs, and a segment that goes is renamed file by file: a slice stays around a millisecond.
RETENTION_SLICE = 8
PAUSE_BETWEEN_SLICES_MS = 1

# What was written since the last round is all that a lost machine has to scan, and all that a restart has to
# walk for the state of producers.
RECOVERY_POINT_INTERVAL_MS = 5_000
CHECKPOINT_SLICE = 16


class Slices:
    """Walks over partitions a few at a time, then once more after the interval."""

    __slots__ = ("_act", "_after", "_interval_ms", "_node", "_partitions", "_rest", "_size", "is_done")

    def __init__(
        self,
        node: "Node",
        partitions: Callable[[], list[Partition]],
        size: int,
        interval_ms: int,
        act: Callable[[Now, Partition], None],
        after: Callable[[Now], None] | None = None,
    ) -> None:
        self._node = node
        self._partitions = partitions
        self._size = size
        self._interval_ms = interval_ms
        self._act = act
        self._after = after  # each round
        self._rest: Iterator[Partition] | None = None
        self.is_done = False

    def start(self, now: Now, delay_ms: int) -> None:
        self._node.deadlines.add(now.after_ms(delay_ms), self)

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
        if self._node.is_stopping:
            return
        if self._rest is None:
            self._rest = iter(self._partitions())
        for _ in range(self._size):
            partition = next(self._rest, None)
            if partition is None:
                self._rest = None
                if self._after is not None:
                    self._after(now)
                self.start(now, self._interval_ms)
                return
            self._look_at(now, partition)
        self.start(now, PAUSE_BETWEEN_SLICES_MS)


class Housekeeping:
    def __init__(self, node: "Node", now: Now) -> None:
        self._node = node
        self._rewriting: set[str] = set()  # directories in which segments are being written anew
        self._has_moved = False  # since the last checkpoint
        interval_ms = node.settings.log_retention_check_interval_ms
        self._retention = Slices(node, node.partitions.all, RETENTION_SLICE, interval_ms, self._retire)
        self._retention.start(now, min(interval_ms, node.settings.log_initial_task_delay_ms))
        self._recovery_points = Slices(
            node,
            node.partitions.dirty,
            CHECKPOINT_SLICE,
            RECOVERY_POINT_INTERVAL_MS,
            self._advance_recovery_point,
            after=self._checkpoint,
        )
        self._recovery_points.start(now, RECOVERY_POINT_INTERVAL_MS)
        self._cleaner = Cleaner(node, self)
        backoff_ms = node.settings.log_cleaner_backoff_ms
        self._cleaning = Slices(
            node,
            self._cleaner.partitions,
            RETENTION_SLICE,
            backoff_ms,
            self._cleaner.look_at,
            after=self._cleaner.start,
        )
        self._cleaning.start(now, backoff_ms)

    def look_after_all(self, now: Now) -> None:
        """A round of everything at once, however long it takes: for tests that moved the date."""
        for slices in (self._retention, self._cleaning, self._recovery_points):
            slices.walk(now)

    # --- retention and recompression ---------------------------------------------------------------------

    def _retire(self, now: Now, partition: Partition) -> None:
        node = self._node
        try:
            log = partition.opened(now)
            doomed = log.retire(now.wall_ms, high_watermark=partition.leader.high_watermark)
            log.expire_producers(now.wall_ms)
        except StorageError as fault:
            node.partitions.storage_failed(now, partition, fault)
            return
        if doomed:
            node.report(
                "info",
                "segments_retired",
                partition=f"{partition.topic}-{partition.index}",
                segments=len(doomed),
                log_start_offset=log.log_start_offset,
            )
            self.remove_later(now, partition, doomed)
        self._recompress(partition)

    def remove_later(self, now: Now, partition: Partition, doomed: list[Any]) -> None:
        """Renamed files stay for a while, for readers that still have them open; then a job unlinks them."""
        log = partition.log
        assert log is not None
        for one in doomed:
            self.run_later(now, partition.config.file_delete_delay_ms, partition.directory, one.remove_job())

    def run_later(self, now: Now, delay_ms: int, directory: str, job: Job) -> None:
        """A removal, once those who still read have had their time."""
        Later(self._node, now, delay_ms, directory, job)

    def _recompress(self, partition: Partition) -> None:
        log = partition.log
        directory = partition.directory
        if log is None or not partition.config.sealed_compression_type or not self.may_rewrite(directory):
            return
        job = log.recompress_job()
        if job is None:
            return
        self.rewrites(directory)

        def finished(now: Now, result: Any) -> None:
            self.rewritten(directory)
            if isinstance(result, BaseException):
                self._node.report("warning", "recompression_failed", directory=directory, error=str(result))
                self._node.partitions.job_failed(now, directory, result)
            elif partition.log is log:
                try:
                    log.complete_recompression(result)
                except StorageError as fault:
                    self._node.partitions.storage_failed(now, partition, fault)
                    return
                self._recompress(partition)

        self._node.run(directory, "rewriting", job, finished)

    # Recompression and compaction write new segments beside the old ones under the same names: one at a time

    def may_rewrite(self, directory: str) -> bool:
        return directory not in self._rewriting

    def rewrites(self, directory: str) -> None:
        self._rewriting.add(directory)

    def rewritten(self, directory: str) -> None:
        self._rewriting.discard(directory)

    # --- recovery points and checkpoints -------------------------------------------------------------------

    def _advance_recovery_point(self, now: Now, partition: Partition) -> None:
        """Indexes and producer state to their files, then an fsync by the group commit."""
        node = self._node
        log = partition.log
        if log is None:
            return
        try:
            log.checkpoint(now.wall_ms)
        except StorageError as fault:
            node.partitions.storage_failed(now, partition, fault)
            return
        self._has_moved = True
        node.commit_of(partition.directory).want(now, partition)

    def offsets_moved(self) -> None:
        """Something that a checkpoint tells has changed."""
        self._has_moved = True

    def _checkpoint(self, now: Now) -> None:
        """Where all logs stand, when any has moved since the last time."""
        if self._has_moved:
            self._has_moved = False
            self._node.partitions.checkpoint(now)

    # --- the end -------------------------------------------------------------------------------------------

    def go_on_stopping(self, now: Now) -> None:
        """Whatever of the stages of `Node.shutdown` can be done now; called after each call of the node, once
        whoever was woken by it has been answered.
        """
        node, partitions = self._node, self._node.partitions
        if node.metrics.held or not node.long_frames.is_empty:
            return
        for partition in partitions.dirty():
            node.commit_of(partition.directory).want(now, partition)
        if not partitions.is_flushed or not node.metadata.is_flushed or node.is_busy(CHECKPOINT_LANE):
            return
        partitions.close_clean(now)
        if not node.is_halted:
            node.stopped()


class Later:
    """A job that is run after a delay."""

    __slots__ = ("_directory", "_job", "_node", "is_done")

    def __init__(self, node: "Node", now: Now, delay_ms: int, directory: str, job: Any) -> None:
        self._node = node
        self._directory = directory
        self._job = job
        self.is_done = False
        node.deadlines.add(now.after_ms(delay_ms), self)

    def expired(self, now: Now) -> None:
        if not self._node.is_stopping:  # else the next start removes what is left
            self._node.run(self._directory, "removal", self._job, self._removed)

    def _removed(self, now: Now, result: Any) -> None:
        if isinstance(result, Exception):
            self._node.partitions.removal_failed(now, self._directory, self._job, result)
