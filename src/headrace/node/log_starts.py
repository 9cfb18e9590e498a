"""New log start offsets of followers, made durable before records are deleted.

A checkpoint file contains the start offsets of all partitions of its directory, and many change at the same
time: after the leader's retention, or when a leader takes over. So one checkpoint is written at a time, and
it contains everything that changed while the one before was being written.
"""

from typing import Any, Protocol

from headrace.base.time import Now
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.ports import Jobs
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE


class Awaiting(Protocol):
    """Whose log is to start later."""

    @property
    def partition(self) -> Partition: ...

    @property
    def is_current(self) -> bool:
        """Else the log is another's by now, or of another topic of that name."""
        ...

    def start_written(self, now: Now, offset: int, outcome: Any, /) -> None:
        """The start is durable, or `outcome` says why it is not."""
        ...


class LogStarts:
    __slots__ = ("_directories", "_jobs", "_under_way", "_wanted")

    def __init__(self, directories: LogDirectories, jobs: Jobs) -> None:
        self._directories = directories
        self._jobs = jobs
        self._wanted: dict[str, dict[Awaiting, int]] = {}  # by directory
        self._under_way: set[str] = set()

    def write(self, awaiting: Awaiting, offset: int) -> None:
        directory = awaiting.partition.directory
        self._wanted.setdefault(directory, {})[awaiting] = offset
        if directory not in self._under_way:
            self._run(directory)

    def _run(self, name: str) -> None:
        wanted = {
            one: offset
            for one, offset in self._wanted.pop(name, {}).items()
            if one.is_current and one.partition.directory == name
        }
        if not wanted:
            return
        directory = self._directories[name]
        job = directory.log_start_job(
            {(one.partition.topic, one.partition.index): offset for one, offset in wanted.items()}
        )
        self._under_way.add(name)

        def finished(now: Now, outcome: Any) -> None:
            self._under_way.discard(name)
            directory.complete_log_starts(job, are_durable=outcome is None)
            if isinstance(outcome, Exception):
                self._directories.offsets_moved()
                self._directories.job_failed(now, name, outcome)
            for one, offset in wanted.items():
                one.start_written(now, offset, outcome)
            if name not in self._under_way:
                self._run(name)

        self._jobs.run(name, CHECKPOINT_QUEUE, job, finished)
