"""Removal of a segment's files.

Files are renamed first (`.deleted`), so that nobody finds them any more, and removed after
`file.delete.delay.ms`, so that reads that have begun can end. Files that were replaced have no name left.
"""

from collections.abc import Sequence

from headrace.base.values import Value
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk, File
from headrace.storage.errors import is_transient
from headrace.storage.jobs import JobKind
from headrace.storage.segment import Segment

DELETED = ".deleted"


class Doomed(Value):
    """A segment that is out of the log; its files wait for removal."""

    base_offset: int
    size_bytes: int
    paths: list[str]
    remove_at_ms: int  # by the wall clock

    def remove_job(self) -> "RemoveJob":
        """To be run at `remove_at_ms`."""
        return RemoveJob(self.paths)


class RemoveJob(Value):
    """Remove files for good; one that is gone already is fine."""

    paths: list[str]

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> None:
        for path in self.paths:
            try:
                disk.remove(path)
            except FileNotFoundError:
                continue


class ReleaseJob(Value):
    """Let go of open files whose names belong to other files by now.

    Closing the last descriptor of such a file frees its blocks and its pages: 30 ms for a gigabyte, which the
    event loop must not spend. A reader that still sends from the file keeps it open.
    """

    files: list[File]

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> None:
        self.files.clear()


def doom_segment(disk: Disk, segment: Segment, config: LogConfig, wall_ms: int) -> Doomed:
    """Rename the segment's files out of the log, the log itself first: without it the others mean nothing.

    An error leaves the segment as it was, and it may be tried again. The caller closes the
    segment's files once it is out of the log.
    """
    log, *others = segment.paths()
    try:
        disk.rename(log, log + DELETED)
    except FileNotFoundError:
        pass  # an earlier attempt came so far
    paths = [log + DELETED, *rename_away(disk, others)]
    return Doomed(segment.base_offset, segment.size, paths, wall_ms + config.file_delete_delay_ms)


def rename_away(disk: Disk, paths: Sequence[str]) -> list[str]:
    """The names under which files that nobody needs wait for their removal.

    Where there is no space for another name the file goes at once: after the delay its own name may be that
    of a later topic's file. What cannot be removed either is removed by a start.
    """
    waiting: list[str] = []
    for path in paths:
        try:
            disk.rename(path, path + DELETED)
        except FileNotFoundError:
            pass  # there is none, or an earlier attempt came so far
        except OSError as error:
            if not is_transient(error):
                raise
            _remove_if_possible(disk, path)
            continue
        waiting.append(path + DELETED)
    return waiting


def _remove_if_possible(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if not is_transient(error):
            raise
