"""Fsyncs of one log directory: at most one in flight, and it carries all that were asked for meanwhile.

That is the group commit: while the disk works on one fsync, further appends pile up, and the next one makes
all of them durable together. A failed fsync is never tried again: the directory goes offline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.base.time import Now
from headrace.node.partition import Partition
from headrace.storage.disk import Disk
from headrace.storage.errors import StorageError
from headrace.storage.jobs import Job, JobKind


@dataclass(slots=True)
class FlushTogether:
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


class GroupCommit:
    __slots__ = ("_failed", "_in_flight", "_run", "_wanted")

    def __init__(
        self,
        run: Callable[[Job, Callable[[Now, Any], None]], None],
        failed: Callable[[Now, OSError], None],
    ) -> None:
        self._run = run  # starts a job in this directory's flush lane and calls back with its result
        self._failed = failed
        self._wanted: dict[Partition, None] = {}
        self._in_flight: list[Partition] = []

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._wanted

    def want(self, now: Now, partition: Partition) -> None:
        """Make all that the partition holds now durable, soon."""
        self._wanted[partition] = None
        if not self._in_flight:
            self._start(now)

    def _start(self, now: Now) -> None:
        partitions: list[Partition] = []
        jobs: list[Job] = []
        for partition in self._wanted:
            log = partition.log
            try:
                job = log.flush_job() if log is not None else None
            except StorageError as fault:
                self._wanted.clear()
                partition.node.partitions.storage_failed(now, partition, fault)
                return
            if job is not None:
                partitions.append(partition)
                jobs.append(job)
        self._wanted.clear()
        if jobs:
            self._in_flight = partitions
            self._run(FlushTogether(jobs), self._finished)

    def _finished(self, now: Now, results: Any) -> None:
        # still in flight meanwhile: whoever wants another flush now is carried by the next one, together
        for partition, result in zip(self._in_flight, results, strict=True):
            if partition.is_deleted:
                continue  # its files were renamed or removed under the job; nobody waits for them
            if isinstance(result, OSError):
                self._in_flight = []
                self._wanted.clear()
                self._failed(now, result)
                return
            partition.flushed(now, result)
        self._in_flight = []
        if self._wanted:
            self._start(now)
