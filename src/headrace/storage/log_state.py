"""State of one partition's log: its segments, its offsets, and what its parts share.

The parts are modules of functions over this state, and each can be used and tested alone: `opening`,
`appending`, `rolling`, `reading`, `flushing`, `retention`, `compaction`, `recompression`, `truncation`,
`moving`. `log.PartitionLog` makes methods of them.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from headrace.storage.batch_validation import opens_batches
from headrace.storage.config import LogConfig
from headrace.storage.damage import Damage
from headrace.storage.disk import Disk, File
from headrace.storage.disk_errors import DirectoryStatus
from headrace.storage.file_list import FileList
from headrace.storage.flush_policy import FlushPolicy
from headrace.storage.log_epochs import LogEpochs
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_producers import PartitionProducers
from headrace.storage.segment import UNLIMITED, Segment
from headrace.storage.segment_removal import Doomed, ReleaseJob, RemoveJob
from headrace.storage.segments import Segments
from headrace.storage.tail import Tail
from headrace.storage.unfinished import Unfinished

if TYPE_CHECKING:
    from headrace.storage.swapping import Rewritten

_P = ParamSpec("_P")
_R = TypeVar("_R")


class LogState:
    __slots__ = (
        "active",
        "config",
        "cut_offset",
        "damages",
        "directory",
        "disk",
        "doomed",
        "epochs",
        "file_list",
        "files",
        "first_dirty_offset",
        "flush_policy",
        "flushed_offset",
        "generation",
        "is_cut",
        "is_dirty",
        "is_renamed",
        "is_unlisted",
        "log_end_offset",
        "log_start_offset",
        "lost_start",
        "lower_recovery_point",
        "next_files",
        "opened_ms",
        "opens_batches",
        "partition_producers",
        "producer_id_expiration_ms",
        "replaced",
        "retires_before",
        "rewrites",
        "roll_jitter_ms",
        "roll_ms",
        "rolled",
        "segments",
        "stamped_epoch",
        "status",
        "tail",
        "unfinished",
        "unfinished_swaps",
        "unflushed_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        files: OpenFiles,
        status: DirectoryStatus,
        wall_ms: int,
        roll_jitter_ms: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
        lower_recovery_point: Callable[[], None] | None = None,
    ) -> None:
        """Empty: `opening.open_files` reads what the directory holds."""
        self.disk = disk
        self.files = files
        self.status = status
        self.directory = directory
        self.opened_ms = wall_ms  # no write before the opening is newer
        self.roll_jitter_ms = roll_jitter_ms
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.lower_recovery_point = lower_recovery_point
        self.configure(config)
        self.damages: list[Damage] = []  # what was found and left as it is
        self.generation = 0  # raised when offsets may mean other records than before
        self.rewrites = 0  # raised when positions in sealed segments mean other batches than before
        self.log_start_offset = 0
        self.lost_start = UNLIMITED  # where it started before its first segments were lost
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.first_dirty_offset = 0  # compaction has seen all below
        self.segments = Segments(disk, files, directory)
        self.unfinished: Unfinished | None = None  # a large batch that is written ahead
        self.unfinished_swaps: list[Rewritten] = []  # new segments that wait for space to replace old ones
        self.next_files: str | None = None  # of which segment the files of the next one have their names
        self.rolled: Callable[[], None] | None = None  # called after a roll, if the next one may come soon
        self.doomed: list[Doomed] = []  # out of the log; a call that fails leaves them to the next one
        self.retires_before: int | None = None  # segments before it go when the next flush is done
        self.replaced: list[File] = []  # old logs of rewritten segments: nothing but these holds their blocks
        self.tail = Tail()
        self.epochs = LogEpochs(disk, directory, self.segments)
        self.file_list = FileList(disk, directory)
        self.stamped_epoch: int | None = None  # the leader epoch of the last append; None: not known
        self.flush_policy = FlushPolicy()
        self.unflushed_bytes = 0  # appended since the last flush that was completed
        self.is_cut = False  # and the cut is not flushed: what was cut off may come back
        self.cut_offset: int | None = None  # of a cut that is about to come: no flush counts from there on
        self.is_dirty = False  # files other than logs were written since the last flush job
        self.is_renamed = False  # names in the directory changed since the last flush job
        self.is_unlisted = False  # the directory itself is new since the last flush job
        self.partition_producers: PartitionProducers
        self.active: Segment

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.opens_batches = opens_batches(config)
        self.roll_ms = config.roll_ms - self.roll_jitter_ms

    @property
    def is_offline(self) -> bool:
        return self.status.error is not None

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes()

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    def take_doomed(self) -> list[Doomed]:
        """What is out of the log, for whoever has it removed."""
        doomed, self.doomed = self.doomed, []
        return doomed

    def release_job(self) -> ReleaseJob | None:
        """Closes what was replaced since the last call."""
        if not self.replaced:
            return None
        replaced, self.replaced = self.replaced, []
        return ReleaseJob(replaced)

    def start_empty(self, offset: int, wall_ms: int) -> None:
        """Begin with a first segment at `offset`."""
        self.active = self.segments.add(offset, wall_ms, is_new=True)
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.lost_start = UNLIMITED
        self.partition_producers.begin(offset)

    def remove_segments(self, segments: list[Segment]) -> None:
        """Remove files at once, from the last segment to the first: what a crash leaves is a log without a
        gap.
        """
        if segments:
            gone = {segment.base_offset for segment in segments}
            self.file_list.drop(gone.__contains__)
        for segment in reversed(segments):
            segment.forget_files()
            RemoveJob(segment.paths()).run(self.disk)
            self.segments.drop([segment])
        if segments:
            self.disk.sync_dir(self.directory)  # none of them may come back behind other records

    def write_epochs(self) -> None:
        if self.epochs.write():
            self.is_dirty = True


_L = TypeVar("_L", bound=LogState)


def guarded(
    function: Callable[Concatenate[_L, _P], _R],
) -> Callable[Concatenate[_L, _P], _R]:
    """Errors of the disk leave a log as DiskFull or LogOffline, never as OSError."""

    @wraps(function)
    def checked(log: _L, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        if log.status.error is not None:
            raise log.status.offline()
        try:
            return function(log, *arguments, **options)
        except OSError as error:
            raise log.status.met(error) from error

    return checked
