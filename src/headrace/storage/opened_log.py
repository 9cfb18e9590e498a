"""A log as it is found on the disk: opened, recovered as far as nobody vouches for it, and what it knows of
itself.

The first of four layers of one object: opened here, grown in `growing_log`, compacted in `compacted_log`,
read and kept in `log`.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

from headrace.storage import recovery as recovering
from headrace.storage.admission import opens_batches
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.cleaning import Rewritten
from headrace.storage.config import LogConfig
from headrace.storage.damage import Damage
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import StorageError
from headrace.storage.flushing import FlushClock
from headrace.storage.health import Health
from headrace.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_producers import PartitionProducers
from headrace.storage.producer_state import ProducerState
from headrace.storage.recovery import Recovery, Scanned
from headrace.storage.retention import RemoveJob
from headrace.storage.segment import TEMPORARY, Segment
from headrace.storage.segments import Segments
from headrace.storage.survey import survey
from headrace.storage.tail import Tail

COPIED_BYTES = 1024 * 1024

_P = ParamSpec("_P")
_R = TypeVar("_R")
_L = TypeVar("_L", bound="OpenedLog")


def guarded(
    method: Callable[Concatenate[_L, _P], _R],
) -> Callable[Concatenate[_L, _P], _R]:
    """The one door for failures of the disk: DiskFull or LogOffline leave it, never an OSError."""

    @wraps(method)
    def checked(log: _L, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        if log._health.error is not None:
            raise log._health.offline()
        try:
            return method(log, *arguments, **options)
        except OSError as error:
            raise log._health.met(error) from error

    return checked


class OpenedLog:
    __slots__ = (
        "_active",
        "_assigned",
        "_config",
        "_disk",
        "_epochs",
        "_files",
        "_flush_clock",
        "_health",
        "_is_dirty",
        "_is_renamed",
        "_is_unlisted",
        "_lowered",
        "_opens",
        "_producers",
        "_roll_jitter_ms",
        "_roll_ms",
        "_scanned",
        "_segments",
        "_stamped_epoch",
        "_tail",
        "_unfinished",
        "_unflushed_bytes",
        "_wall_ms",
        "damages",
        "directory",
        "first_dirty_offset",
        "flushed_offset",
        "generation",
        "log_end_offset",
        "log_start_offset",
        "producer_id_expiration_ms",
        "rewrites",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        files: OpenFiles,
        health: Health,
        wall_ms: int,
    ) -> None:
        """Not for callers: `open` reads what is there."""
        self._disk = disk
        self._files = files
        self._health = health
        self.directory = directory
        self._roll_jitter_ms = 0
        self.config = config
        self.damages: list[Damage] = []  # what recovery found and left as it is
        self.generation = 0  # raised when offsets may mean other records than before
        self.rewrites = 0  # raised when positions in sealed segments mean other batches than before
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.first_dirty_offset = 0  # compaction has seen all below
        self.producer_id_expiration_ms = 0
        self._wall_ms = wall_ms  # of the opening: how new the newest write before it may be
        self._segments = Segments(disk, files, directory)
        self._unfinished: list[Rewritten] = []  # new segments that wait for space to replace the old ones
        self._tail = Tail()
        self._epochs: LeaderEpochs | None = None  # None: not read yet
        self._scanned: Scanned | None = None  # what recovery met, while epochs are not read
        self._assigned: tuple[int, int] | None = None  # epoch and offset, while epochs are not read
        self._stamped_epoch = -2  # the epoch of the last append by a leader here
        self._flush_clock = FlushClock()
        self._unflushed_bytes = 0
        self._is_dirty = False  # something beside batches was written since the last flush job
        self._is_renamed = False  # names in the directory changed since the last flush job
        self._is_unlisted = False  # the directory itself is new since the last flush job
        self._lowered: Callable[[], None] | None = None
        self._producers: PartitionProducers
        self._active: Segment

    # --- opening ----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        files: OpenFiles,
        recovery: Recovery,
        wall_ms: int,
        roll_jitter_ms: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
        health: Health | None = None,
        recovery_point_lowered: Callable[[], None] | None = None,
    ) -> Self:
        """The log in `directory`, made when absent, and recovered as far as `recovery` does not vouch for it.

        `recovery_point_lowered` is called when a truncation makes a recovery point untrue that may be on
        the disk already, and has to make the lower one durable.
        """
        log = cls(disk, directory, config, files, health or Health(), wall_ms)
        log.producer_id_expiration_ms = producer_id_expiration_ms
        log._roll_jitter_ms = roll_jitter_ms
        log.config = config
        log._lowered = recovery_point_lowered
        try:
            log._open(recovery, wall_ms)
        except StorageError:
            files.forget_directory(disk, directory)  # the next try clears away what this one has open
            raise
        return log

    @guarded
    def _open(self, recovery: Recovery, wall_ms: int) -> None:
        found = survey(self._disk, self.directory)
        # a process that was killed may not have come to its first flush
        self._is_unlisted = not found.bases or recovery.trust == "killed"
        segments = self._segments
        for base in found.bases:
            segments.add(base, wall_ms)
        self._producers = PartitionProducers(self._disk, self.directory, segments, found.snapshots)
        start = recovery.log_start_offset
        if not found.bases:
            if (
                recovery.recovery_point > start
            ):  # these offsets were given, and are not given to other records
                start = recovery.recovery_point
                self.damages.append(Damage(self.directory, f"the segments before offset {start} are missing"))
            self._start_empty(max(start, 0), wall_ms)
            return
        # what lies wholly before the log start was deleted already, but the deletion did not last
        self._remove_segments(segments.items[: segments.number_of(start)])
        is_clean = recovery.trust == "clean" and recovery.recovery_point >= found.bases[-1]
        if is_clean and (recovery.is_checked or self._ends_at(recovery.recovery_point)):
            self.log_end_offset = segments.active.limit_offset = recovery.recovery_point
        else:
            self._recover(recovery, wall_ms)
        self.flushed_offset = min(
            max(recovery.recovery_point, segments.items[0].base_offset), self.log_end_offset
        )
        self.log_start_offset = max(start, segments.items[0].base_offset)
        self._active = segments.active
        if self.log_start_offset > self.log_end_offset:
            # records that were deleted on request were lost too: nothing is left that may be shown
            self._remove_segments(segments.items)
            self._producers.truncate(-1)
            self._start_empty(self.log_start_offset, wall_ms)

    def _ends_at(self, offset: int) -> bool:
        """Whether the log is what a clean stop leaves: its last batch ends at `offset`."""
        active = self._segments.active
        active.load()
        if not active.size:
            return active.base_offset == offset
        return active.last_batch_end() == offset

    def _start_empty(self, offset: int, wall_ms: int) -> None:
        self._active = self._segments.add(offset, wall_ms, is_new=True)
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self._producers.begin(offset)

    def _recover(self, recovery: Recovery, wall_ms: int) -> None:
        items = self._segments.items
        interval = self._config.index_interval_bytes
        has_gaps = "compact" in self._config.cleanup_policy
        if recovery.trust == "killed":
            scanned = recovering.recover_killed(
                items[-1],
                recovery.recovery_point,
                interval,
                has_gaps=has_gaps,
                high_watermark=recovery.high_watermark,
            )
        else:
            if recovery.is_cached_only:
                self._write_again(recovery.recovery_point)
            self._remove_segments(recovering.overlapped(items, has_gaps=has_gaps))
            items = self._segments.items
            if not has_gaps:
                first, damages = recovering.contiguous_from(items, recovery.recovery_point)
                self.damages += damages
                self._remove_segments(items[:first])
            scanned = recovering.recover_lost(
                self._segments.items, recovery.recovery_point, interval, has_gaps=has_gaps
            )
            self._remove_segments(scanned.removed)
        self._is_dirty = self._is_renamed = True
        self.damages += scanned.damages
        self.log_end_offset = scanned.end_offset
        self._producers.truncate(scanned.end_offset)
        if scanned.has_control:
            self._producers.load(wall_ms, aborts_from=max(scanned.start_offset, recovery.recovery_point))
        self._scanned = scanned
        if recovery.trust != "killed":
            self._write_epochs(self._leader_epochs())

    def _write_again(self, offset: int) -> None:
        """Bring what was not flushed to other pages: the kernel takes those that a failed fsync left behind
        for written, and the next fsync of them would succeed without having done anything.
        """
        with suppress(FileNotFoundError):  # first, as in a flush
            metadata = f"{self.directory}/{PARTITION_METADATA}"
            write_atomically(self._disk, metadata, read_whole(self._disk, metadata))
        for segment in self._segments.from_offset(offset):
            path = f"{segment.path}.log"
            old, new = self._disk.open(path), self._disk.open(path + TEMPORARY, create=True)
            try:
                new.truncate(0)
                position = 0
                while data := old.read(position, COPIED_BYTES):
                    new.append(data)
                    position += len(data)
                new.sync()
            finally:
                old.close()
                new.close()
            segment.forget_files()
            self._disk.rename(path + TEMPORARY, path)
        self._disk.sync_dir(self.directory)

    def _remove_segments(self, segments: list[Segment]) -> None:
        """Remove files at once, from the last segment to the first: what a crash leaves is a log without a
        gap.
        """
        for segment in reversed(segments):
            segment.forget_files()
            RemoveJob(segment.paths()).run(self._disk)
            self._segments.drop([segment])
        if segments:
            self._disk.sync_dir(self.directory)  # none of them may come back behind other records

    # --- what it is -------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._opens = opens_batches(config)
        self._roll_ms = config.roll_ms - self._roll_jitter_ms

    @property
    def is_offline(self) -> bool:
        return self._health.error is not None

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes()

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def unflushed_bytes(self) -> int:
        """Appended since the last flush that came back."""
        return self._unflushed_bytes

    @property
    @guarded
    def latest_epoch(self) -> int:
        return self._leader_epochs().latest

    def producer_state(self, wall_ms: int | None = None) -> ProducerState:
        state = self._producers.state
        return state or self._load_producers(self._wall_ms if wall_ms is None else wall_ms)

    @guarded
    def _load_producers(self, wall_ms: int) -> ProducerState:
        return self._producers.load(wall_ms)

    @property
    @guarded
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins; None without one."""
        first = self.producer_state().first_open_offset
        return None if first is None else max(first, self.log_start_offset)

    @guarded
    def last_stable_offset(self, high_watermark: int) -> int:
        return max(self.producer_state().last_stable_offset(high_watermark), self.log_start_offset)

    def _leader_epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = LeaderEpochs.read(self._disk, f"{self.directory}/{EPOCHS_FILE}")
            if self._epochs is None:
                # every batch carries its epoch, so a lost file costs time and nothing else
                self._epochs = LeaderEpochs()
                for _, _, header in self._segments.headers(0):
                    if header.leader_epoch > self._epochs.latest:
                        self._epochs.assign(header.leader_epoch, header.base_offset)
            self._amend_epochs(self._epochs)
        return self._epochs

    def _amend_epochs(self, epochs: LeaderEpochs) -> None:
        """What was learned before the file was read: from batches that recovery met, and from the node."""
        if self._scanned is not None:
            epochs.truncate_end(self._scanned.end_offset)
            for epoch, offset in self._scanned.epochs:
                if epoch > epochs.latest:
                    epochs.assign(epoch, offset)
            self._scanned = None
        if self._assigned is not None:
            epoch, offset = self._assigned
            if epoch > epochs.latest:
                epochs.assign(epoch, offset)
            self._assigned = None

    def _write_epochs(self, epochs: LeaderEpochs) -> None:
        if epochs.is_changed:
            epochs.write(self._disk, f"{self.directory}/{EPOCHS_FILE}")
            self._is_dirty = True

    @guarded
    def assign_epoch(self, epoch: int) -> None:
        """A new leader epoch begins at the log's end. It reaches the disk with its first batch."""
        if self._epochs is None:
            self._assigned = epoch, self.log_end_offset  # a start with many logs reads none of their files
        elif epoch > self._epochs.latest:
            self._epochs.assign(epoch, self.log_end_offset)

    @guarded
    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return self._leader_epochs().end_offset(epoch, self.log_end_offset)

    @guarded
    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the offset was written; -1 when it is not known."""
        return self._leader_epochs().epoch_of(offset)
