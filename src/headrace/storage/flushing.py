"""Making a log durable: what to sync, as a job, and when the settings ask for it.

A flush covers the log up to where it ended when the job was made. The job carries the log's generation:
when the log was truncated meanwhile, its result says nothing about what the offsets now hold, and is
dropped.
"""

from dataclasses import dataclass

from headrace.base.time import Instant, Now
from headrace.storage.config import INT64_MAX, LogConfig
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind


@dataclass(slots=True)
class Flushed:
    directory: str
    generation: int
    end_offset: int
    snapshots: list[int]  # offsets of those that are durable now


@dataclass(slots=True)
class FlushJob:
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


class FlushClock:
    """flush.messages and flush.ms: whether a flush is due. Time counts from when unflushed data was first
    noticed.
    """

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: Instant | None = None

    def reset(self) -> None:
        self._since = None

    def due_at(self, config: LogConfig, unflushed_messages: int, now: Now) -> Instant | None:
        """None: nothing to flush, or no setting asks for it."""
        if not unflushed_messages:
            return None
        if unflushed_messages >= config.flush_messages:
            return now.mono
        if config.flush_ms == INT64_MAX:
            return None
        if self._since is None:
            self._since = now.mono
        return Instant(self._since + config.flush_ms / 1000)
