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
from headrace.storage.jobs import Job, JobKind


@dataclass(slots=True)
class FlushTogether:
    """Several logs' flushes, one after the other, as one job."""

    jobs: list[Job]
    kind: JobKind = JobKind.IO

    def run(self, disk: Disk) -> list[Any]:
        return [job.run(disk) for job in self.jobs]


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

    def want(self, partition: Partition) -> None:
        """Make all that the partition holds now durable, soon."""
        self._wanted[partition] = None
        if not self._in_flight:
            self._start()

    def _start(self) -> None:
        partitions: list[Partition] = []
        jobs: list[Job] = []
        for partition in self._wanted:
            log = partition.log
            job = log.flush_job() if log is not None else None
            if job is not None:
                partitions.append(partition)
                jobs.append(job)
        self._wanted.clear()
        if jobs:
            self._in_flight = partitions
            self._run(FlushTogether(jobs), self._finished)

    def _finished(self, now: Now, results: Any) -> None:
        partitions, self._in_flight = self._in_flight, []
        if isinstance(results, OSError):
            self._failed(now, results)
            return
        for partition, result in zip(partitions, results, strict=True):
            partition.flushed(now, result)
        if self._wanted:
            self._start()
