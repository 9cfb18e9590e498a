"""Group commit: the fsyncs of one log directory, at most one in flight.

While the disk works on one fsync, further appends wait; the next fsync makes all of them durable together. A
failed fsync is never retried: the directory goes offline.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.time import Now
from headrace.base.values import Value
from headrace.node.ports import Deadlines, Once, Reports
from headrace.storage.disk import Disk
from headrace.storage.errors import DiskFull, StorageError, is_transient
from headrace.storage.flushing import Flushed
from headrace.storage.jobs import Job, JobKind
from headrace.storage.log import PartitionLog

if TYPE_CHECKING:
    from headrace.node.log_directories import LogDirectories

# How long to wait before something that found no space or no descriptor is tried again.
RETRY_MS = 1_000


class FlushTogether(Value):
    """Several logs' flushes, one after the other, as one job."""

    jobs: list[Job]
    kind: JobKind = JobKind.IO

    def run(self, disk: Disk) -> list[Any]:
        """Each one's result, or the error it met: a topic that was deleted meanwhile fails alone."""
        results: list[Any] = []
        for job in self.jobs:
            try:
                results.append(job.run(disk))
            except OSError as error:
                results.append(error)
        return results


class Flushable(Protocol):
    """What a group commit needs of a partition."""

    directory: str
    is_offline: bool
    log: PartitionLog | None

    def flushed(self, now: Now, result: Flushed, /) -> None: ...


class GroupCommit:
    __slots__ = (
        "_deadlines",
        "_directories",
        "_directory",
        "_failed",
        "_in_flight",
        "_is_pausing",
        "_reports",
        "_run",
        "_wanted",
    )

    def __init__(
        self,
        directory: str,
        run: Callable[[Job, Callable[[Now, Any], None]], None],
        failed: Callable[[Now, Exception], None],
        directories: "LogDirectories",
        reports: Reports,
        deadlines: Deadlines,
    ) -> None:
        self._directory = directory
        self._directories = directories
        self._reports = reports
        self._deadlines = deadlines
        self._run = run  # starts a job in this directory's flush queue and calls back with its result
        self._failed = failed
        self._wanted: dict[Flushable, None] = {}
        self._is_pausing = False  # before what could not be flushed is tried again
        self._in_flight: list[tuple[Flushable, PartitionLog]] = []

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._wanted

    def want(self, now: Now, partition: Flushable) -> None:
        """Make all that the partition holds now durable, soon."""
        self._wanted[partition] = None
        if not self._in_flight and not self._is_pausing:
            self._start(now)

    def _start(self, now: Now) -> None:
        flushed: list[tuple[Flushable, PartitionLog]] = []
        jobs: list[Job] = []
        postponed: list[Flushable] = []
        mistakes: list[Exception] = []
        for partition in self._wanted:
            log = partition.log
            if log is None:
                continue
            if partition.directory != self._directory:
                self._directories.want_flush(now, partition)  # it moved to another directory since
                continue
            try:
                job = log.flush_job()
            except DiskFull as fault:
                postponed.append(partition)
                self._directories.storage_failed(now, partition, fault)
                continue
            except StorageError as fault:
                self._wanted.clear()
                self._directories.storage_failed(now, partition, fault)
                return
            except Exception as mistake:  # of ours: it does not cost the others their flush
                postponed.append(partition)
                mistakes.append(mistake)
                continue
            if job is not None:
                flushed.append((partition, log))
                jobs.append(job)
        self._wanted.clear()
        for partition in postponed:
            self._postpone(now, partition)
        if jobs:
            self._in_flight = flushed
            self._run(FlushTogether(jobs), self._finished)
        if mistakes:
            raise mistakes[0]

    def _finished(self, now: Now, results: Any) -> None:
        if isinstance(results, Exception):
            results = [results] * len(self._in_flight)  # there was no thread for it, or it ended in a mistake
        mistakes: list[Exception] = []
        # still in flight meanwhile: whoever wants another flush now is carried by the next one, together
        for (partition, log), result in zip(self._in_flight, results, strict=True):
            if partition.log is not log:
                continue  # deleted or moved: its files were renamed under the job, and nobody waits for them
            if isinstance(result, OSError) and is_transient(result):
                self._reports.report(
                    "error", "flush_postponed", directory=partition.directory, error=str(result)
                )
                log.postpone_flush()
                self._postpone(now, partition)
                continue
            if isinstance(result, Exception):
                self._in_flight = []
                self._wanted.clear()
                self._failed(now, result)
                return
            try:
                partition.flushed(now, result)
            except Exception as mistake:  # of ours: it costs neither the others nor the flushes that follow
                mistakes.append(mistake)
        self._in_flight = []
        if self._wanted and not self._is_pausing:
            self._start(now)
        if mistakes:
            raise mistakes[0]

    def _postpone(self, now: Now, partition: Flushable) -> None:
        """No descriptor or thread was left, or we made a mistake: nothing of it was tried."""
        self._wanted[partition] = None
        if not self._is_pausing:
            self._is_pausing = True
            Once(self._deadlines, now.after_ms(RETRY_MS), self._go_on)

    def _go_on(self, now: Now) -> None:
        self._is_pausing = False
        if not self._in_flight and self._wanted:
            self._start(now)
