"""Files of a log's next segment, which a job creates ahead of the roll.

    <base offset of the active segment>.next.log.tmp, .next.index.tmp, .next.timeindex.tmp

To create a file takes ten times as long as to rename one, and longer while the file system writes its
journal: the event loop must not wait for that. So a log that will soon be rolled gets the files of its next
segment first, empty and under these names, which a start removes. The roll gives them their own names, the
log last, as it would create them. If there are none, because the log grew too fast or the disk was full, the
roll creates them.
"""

from headrace.base.values import Value
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind
from headrace.storage.log_state import LogState
from headrace.storage.rolling import AHEAD_MS
from headrace.storage.segment import CREATED, next_path

# What was written since the last look is expected again, in each of as many looks as fit into `AHEAD_MS`.
_LOOKS_AHEAD = 4


class NextSegmentJob(Value):
    """Create the files that follow the segment at `path`. It may be repeated."""

    path: str

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> str:
        for suffix in CREATED:
            disk.open(next_path(self.path, suffix), create=True).close()
        return self.path


def wants_next(log: LogState, wall_ms: int) -> bool:
    """Whether the log will soon be rolled, and nothing is prepared for that."""
    active = log.active
    if log.next_files is not None or log.status.error is not None or not active.is_loaded or not active.size:
        return False
    size_max = log.config.segment_bytes
    if active.size * 4 >= size_max * 3 or active.size + _LOOKS_AHEAD * log.unflushed_bytes >= size_max:
        return True
    since = active.first_timestamp if active.first_timestamp >= 0 else active.created_ms
    return wall_ms + AHEAD_MS - since > log.roll_ms


def next_job(log: LogState) -> NextSegmentJob:
    return NextSegmentJob(log.active.path)


def complete_next(log: LogState, path: str) -> None:
    """The files are there. They fit any roll from now on, also if the log was rolled or cut meanwhile."""
    log.next_files = path
