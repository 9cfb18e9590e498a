"""Moves of a partition's log to another log directory: names of the copies, and the copying.

    <topic>-<partition>.<id>-future/    being copied; a start removes it
    <topic>-<partition>.<id>-moved/     whole and durable: it replaces the partition's log if no directory of
                                        the node has the partition under its own name

The old directory is renamed away between the second name and the third, the partition's own, and each step is
durable before the next: whatever a crash leaves, one whole log is found, and never two.
"""

import re
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.base.ids import TopicId
from headrace.base.values import Value
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind
from headrace.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from headrace.storage.log_state import LogState, guarded
from headrace.storage.segment_removal import Doomed
from headrace.storage.swapping import finish_swaps

FUTURE = "-future"
MOVED = "-moved"
CHUNK_BYTES = 1024 * 1024

R = TypeVar("R")

_NAME_BYTES_MAX = 255
_MOVING = re.compile(r".+\.([0-9a-f]{32})\.([0-9a-f]+)(-future|-moved)")
_SUFFIXES = ("log", "index", "timeindex", "txnindex", "snapshot")


def moving_name(topic: str, partition: int, topic_id: bytes, stage: str) -> str:
    """A long topic name loses its end; the id keeps it unique."""
    suffix = f".{topic_id.hex()}.{partition:x}{stage}"
    return f"{topic}-{partition}"[: _NAME_BYTES_MAX - len(suffix)] + suffix


class Arrival(NamedTuple):
    """A directory under one of the two names, as a start finds it."""

    name: str
    topic_id: TopicId
    partition: int
    is_whole: bool

    @property
    def original(self) -> str:
        """The partition's own name, as far as the directory's name has it."""
        return self.name[: self.name.rindex(f".{self.topic_id.hex()}.")]


def arrivals(names: Iterable[str]) -> list[Arrival]:
    found = []
    for name in names:
        match = _MOVING.fullmatch(name)
        if match is not None:
            topic_id = TopicId(bytes.fromhex(match[1]))
            found.append(Arrival(name, topic_id, int(match[2], 16), match[3] == MOVED))
    return found


def files_of(names: Iterable[str]) -> list[str]:
    """What of a partition's directory makes the log; the rest is left behind."""
    return [name for name in names if name in (EPOCHS_FILE, PARTITION_METADATA) or _is_of_segment(name)]


def _is_of_segment(name: str) -> bool:
    stem, _, suffix = name.partition(".")
    return stem.isdigit() and suffix in _SUFFIXES


class ReadJob(Value):
    """Some bytes of a file that does not change there; fewer at its end."""

    path: str
    position: int

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> bytes:
        file = disk.open(self.path)
        try:
            return file.read(self.position, CHUNK_BYTES)
        finally:
            file.close()


class WriteJob(Value):
    """The same bytes at the same place of the copy; the last ones make it durable."""

    directory: str
    name: str
    position: int
    data: bytes

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    @property
    def is_last(self) -> bool:
        return len(self.data) < CHUNK_BYTES

    def run(self, disk: Disk, /) -> None:
        if self.position == 0:
            disk.make_dir(self.directory)
        file = disk.open(f"{self.directory}/{self.name}", create=True)
        try:
            if file.size() != self.position:
                file.truncate(self.position)
            file.append(self.data)
            if self.is_last:
                file.sync()
        finally:
            file.close()


class SourceFailed(Exception):
    """The log could not be read where it lies; `error` says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def complete(source: Disk, old: str, target: Disk, new: str, copied: Iterable[str]) -> None:
    """Here and now: copy what was not copied yet, remove copies of what is gone, and make it all durable. An
    OSError is the target's.
    """
    target.make_dir(new)
    wanted = files_of(_of_source(lambda: source.list(old)))
    for name in sorted(set(wanted) - set(copied)):
        position = 0
        while True:
            read = ReadJob(f"{old}/{name}", position)
            write = WriteJob(new, name, position, _of_source(partial(read.run, source)))
            write.run(target)
            if write.is_last:
                break
            position += len(write.data)
    for name in sorted(set(target.list(new)) - set(wanted)):
        target.remove(f"{new}/{name}")
    target.sync_dir(new)


def _of_source(read: Callable[[], R]) -> R:
    try:
        return read()
    except OSError as error:
        raise SourceFailed(error) from error


def arrive(disk: Disk, old: str, new: str) -> None:
    """The next name of the way, durable. It may be tried again."""
    if disk.exists(old) or not disk.exists(new):
        disk.rename(old, new)
    disk.sync_dir("")


@guarded
def settle_names(log: LogState, wall_ms: int) -> list[Doomed]:
    """Before files are copied by their names: put rewritten segments in place that had no space for that.
    DiskFull when there still is none: then a name may be that of another segment, or of none.
    """
    finish_swaps(log, wall_ms)
    return log.take_doomed()


@guarded
def bytes_without(log: LogState, copied: Container[str]) -> int:
    """Of all segments whose log is not among those names."""
    return sum(
        segment.measure()
        for segment in log.segments.items
        if not segment.is_new and f"{segment.base_offset:020d}.log" not in copied
    )


@guarded
def sealed_files(log: LogState) -> list[str]:
    """Names of the files before the active segment, which change no more unless they are rewritten. They
    have to be settled (`settle_names`).
    """
    end = log.active.base_offset
    return [
        name
        for name in files_of(log.disk.list(log.directory))
        if (stem := name.partition(".")[0]).isdigit() and int(stem) < end
    ]
