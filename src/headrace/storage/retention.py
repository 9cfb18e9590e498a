"""Which segments may go, by time, by size and by log start offset; and how their files go.

Files are renamed first (`.deleted`), so that nobody finds them any more, and removed after
`file.delete.delay.ms`, so that whoever is reading them still can.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk
from headrace.storage.errors import is_transient
from headrace.storage.jobs import JobKind
from headrace.storage.segment import Segment

DELETED = ".deleted"


@dataclass(slots=True)
class Doomed:
    """A segment that is out of the log; its files wait for removal."""

    base_offset: int
    size_bytes: int
    paths: list[str]
    remove_at_ms: int  # by the wall clock


@dataclass(slots=True)
class RemoveJob:
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


def doom(disk: Disk, segment: Segment, config: LogConfig, wall_ms: int) -> Doomed:
    """Rename the segment's files out of the log, the log itself first: without it the others mean nothing.

    An error leaves the segment as it was, and it may be tried again. Whoever has taken the segment out of the
    log lets go of its files.
    """
    log, *others = segment.paths()
    try:
        disk.rename(log, log + DELETED)
    except FileNotFoundError:
        pass  # an earlier attempt came so far
    paths = [log + DELETED, *rename_away(disk, others)]
    return Doomed(segment.base_offset, segment.size, paths, wall_ms + config.file_delete_delay_ms)


def rename_away(disk: Disk, paths: Sequence[str]) -> list[str]:
    """The names under which files that nobody needs wait for their removal: their own, where there is no
    space for another.
    """
    waiting: list[str] = []
    for path in paths:
        try:
            disk.rename(path, path + DELETED)
            waiting.append(path + DELETED)
        except FileNotFoundError:
            continue
        except OSError as error:
            if not is_transient(error):
                raise
            waiting.append(path)
    return waiting


def deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    wall_ms: int,
) -> int:
    """How many segments, from the oldest on, are to go. All of them: then a new active one is due before.

    Nothing that reaches beyond the high watermark goes, and no empty segment.
    """
    deletes = "delete" in config.cleanup_policy
    excess = -1
    if deletes and config.retention_bytes >= 0:
        excess = sum(segment.measure() for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
        if end > high_watermark or end == segment.base_offset:
            break
        if end > log_start_offset or number + 1 == len(segments):
            if not deletes:
                break
            if not excess >= segment.measure() > 0 and not _is_expired(segment, config, wall_ms):
                break
        excess -= segment.measure()  # whatever it goes for, it takes that much away
        count += 1
    return count


def _is_expired(segment: Segment, config: LogConfig, wall_ms: int) -> bool:
    if config.retention_ms < 0:
        return False
    segment.load()
    # records without timestamps are as old as our last write to the segment
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms
    return wall_ms - newest > config.retention_ms
