"""Offsets of a log directory's partitions, as its four checkpoint files have them.

Checkpoints name a partition by its topic's name. If an earlier topic had the same name, a new log is marked
with a file (`.headrace_fresh.<topic id>`) until a checkpoint describes the new log. Until then the
checkpoints' lines with that name are ignored.
"""

from collections.abc import Mapping, Set

from headrace.storage import checkpoints
from headrace.storage.checkpoint_sums import (
    SUMS,
    DamagedSums,
    Sums,
    are_replaced,
    read_sums,
    sum_of,
    write_checkpoints,
)
from headrace.storage.checkpoints import MalformedCheckpoint, Partition
from headrace.storage.damage import Damage
from headrace.storage.directory_jobs import FRESH, CheckpointJob
from headrace.storage.disk import Disk, read_whole
from headrace.storage.log import PartitionLog
from headrace.storage.stop_record import CLEAN_MARKER

_FILES = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_STARTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)


def mark_path(directory: str, topic_id: bytes) -> str:
    return f"{directory}/{FRESH}.{topic_id.hex()}"


class DirectoryCheckpoints:
    __slots__ = (
        "_cut_starts",
        "_disk",
        "_fresh",
        "_lowering",
        "_mentioned",
        "_ordered_starts",
        "cleaner_offsets",
        "damages",
        "has_jobs",
        "has_lost_starts",
        "has_old_sums",
        "high_watermarks",
        "is_lowered",
        "log_starts",
        "recovery_points",
        "sums",
    )

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.recovery_points: dict[Partition, int] = {}
        self.log_starts: dict[Partition, int] = {}
        self.high_watermarks: dict[Partition, int] = {}
        self.cleaner_offsets: dict[Partition, int] = {}
        self.sums: Sums = {}  # of these files, as the last run left them
        self.has_old_sums = False  # from before another program ran in the directory
        # Log starts of deletions whose jobs have not ended. Every checkpoint has them, since it is written
        # after those jobs. `complete_log_starts` takes them out again.
        self._ordered_starts: list[tuple[CheckpointJob, dict[Partition, int]]] = []
        # What the files on the disk mention, now or when a job has run: a new log of such a name is marked.
        self._mentioned: set[Partition] = set()
        self._fresh: dict[Partition, str] = {}  # paths of marks, until a checkpoint is right about the log
        self._lowering: dict[Partition, CheckpointJob] = {}  # the last job that was ordered before a cut
        self._cut_starts: dict[Partition, int] = {}  # logs that are being cut: where they start at the latest
        self.is_lowered = False  # a lost host has lost records below the offsets on the disk
        self.has_jobs = False  # that write checkpoints, maybe at this moment
        self.damages: list[Damage] = []  # found by reading
        self.has_lost_starts = False  # where logs start was written, and cannot be read

    # --- reading ----------------------------------------------------------------------------------

    def read_sums(self, names: Set[str]) -> None:
        """`names` are the entries of the directory."""
        if SUMS not in names:
            return
        try:
            self.sums = read_sums(self._disk) or {}
        except DamagedSums as error:
            self.damages.append(Damage(SUMS, str(error)))

    def read(self, names: Set[str]) -> None:
        contents = {name: read_whole(self._disk, name) for name in _FILES if name in names}
        marker = read_whole(self._disk, CLEAN_MARKER) if CLEAN_MARKER in names else None
        if are_replaced(self.sums, contents, marker):
            self.has_old_sums = True
            self.sums = {}
        self.recovery_points = self._parse(checkpoints.RECOVERY_POINTS, contents)
        self.log_starts = self._parse(checkpoints.LOG_STARTS, contents)
        self.high_watermarks = self._parse(checkpoints.HIGH_WATERMARKS, contents)
        self.cleaner_offsets = self._parse(checkpoints.CLEANER_OFFSETS, contents)
        for offsets in self._all():
            self._mentioned.update(offsets)
        path = checkpoints.LOG_STARTS
        is_missing = path not in contents and path in self.sums
        self.has_lost_starts = is_missing or any(damage.path == path for damage in self.damages)

    def _all(self) -> tuple[dict[Partition, int], ...]:
        return (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets)

    def _parse(self, path: str, contents: Mapping[str, bytes]) -> dict[Partition, int]:
        data = contents.get(path)
        if data is None or (not data and path not in self.sums):  # missing, or empty as Kafka creates it
            return {}
        try:
            if path in self.sums and sum_of(path, data) not in self.sums[path]:
                raise MalformedCheckpoint("the checksum is wrong")
            return checkpoints.parse_offsets(data)
        except MalformedCheckpoint as error:
            # nothing is vouched for then, and recovery looks at everything
            self.damages.append(Damage(path, str(error)))
            return {}

    @property
    def are_checked(self) -> bool:
        """The recovery points have a checksum."""
        return checkpoints.RECOVERY_POINTS in self.sums

    @property
    def are_starts_checked(self) -> bool:
        """The log starts are there, and have a checksum: this program has written them."""
        return checkpoints.LOG_STARTS in self.sums and not self.has_lost_starts

    def remove_old_sums(self) -> None:
        """It may be tried again."""
        if self.has_old_sums:
            if self._disk.exists(SUMS):
                self._disk.remove(SUMS)
            self._disk.sync_dir("")
            self.has_old_sums = False

    # --- single partitions ------------------------------------------------------------------------

    def forget(self, key: Partition) -> None:
        for offsets in self._all():
            offsets.pop(key, None)
        for _, starts in self._ordered_starts:
            starts.pop(key, None)

    def drop(self, key: Partition) -> None:
        """Its log is gone, with its mark."""
        self.forget(key)
        self._fresh.pop(key, None)
        self._lowering.pop(key, None)
        self._cut_starts.pop(key, None)

    def begin(self, key: Partition, directory: str, topic_id: bytes) -> None:
        """A new log: what the files on the disk say of an earlier one of its name is never believed."""
        self.forget(key)
        if key in self._mentioned:
            mark = mark_path(directory, topic_id)
            self._disk.open(mark, create=True).close()
            self._disk.sync_dir(directory)  # where a record survives, the mark must
            self._fresh[key] = mark

    def heed_mark(self, key: Partition, directory: str, topic_id: bytes) -> None:
        """If the log is marked, forget what was read about its name."""
        mark = mark_path(directory, topic_id)
        if self._disk.exists(mark):
            self.forget(key)
            self._fresh[key] = mark

    def marks_in(self, directory: str) -> list[str]:
        return [f"{directory}/{name}" for name in self._disk.list(directory) if name.startswith(FRESH)]

    def lower(self, key: Partition, log_end_offset: int) -> None:
        """The log ends there, whatever the files say."""
        for offsets in (self.high_watermarks, self.recovery_points):
            if offsets.get(key, 0) > log_end_offset:
                offsets[key] = log_end_offset
                self.is_lowered = True

    def promise_less(self, key: Partition, log_end_offset: int, log_start_offset: int | None) -> bool:
        """The log is about to end there, and to start there at the latest (None: it starts where it did);
        whether the files may say more. Until the cut is over, no checkpoint has a later start of it.
        """
        ends = (self.high_watermarks, self.recovery_points, self.cleaner_offsets)
        limits = [(offsets, log_end_offset) for offsets in ends]
        if log_start_offset is not None:
            self._cut_starts[key] = log_start_offset
            starts = (self.log_starts, *(ordered for _, ordered in self._ordered_starts))
            limits += [(offsets, log_start_offset) for offsets in starts]
        too_high = [(offsets, limit) for offsets, limit in limits if offsets.get(key, 0) > limit]
        for offsets, limit in too_high:
            offsets[key] = limit
        ordered = self._lowering.get(key)  # it may have failed, or not begun, and nobody may wait for it
        return bool(too_high) or (ordered is not None and not ordered.are_written)

    def end_cut(self, key: Partition) -> bool:
        """The log was cut, or will not be; whether a cut was announced."""
        return self._cut_starts.pop(key, None) is not None

    def lower_job(self, key: Partition) -> CheckpointJob:
        """Write what `promise_less` has noted."""
        job = self._lowering[key] = self.job()
        return job

    def note(self, logs: Mapping[Partition, PartitionLog]) -> None:
        """Take over where these logs stand."""
        for key, log in logs.items():
            self.recovery_points[key] = log.flushed_offset
            start = log.kept_start()
            if key in self._cut_starts:
                start = min(start, self._cut_starts[key])
            if start > self.log_starts.get(key, 0):
                self.log_starts[key] = start
            if log.first_dirty_offset or key in self.cleaner_offsets:
                self.cleaner_offsets[key] = log.first_dirty_offset

    # --- writing ----------------------------------------------------------------------------------

    def job(self) -> CheckpointJob:
        """Write all four, and remove the marks of logs about which they are right then."""
        self.has_jobs = True
        return CheckpointJob(
            {
                checkpoints.RECOVERY_POINTS: self._render(self.recovery_points),
                checkpoints.LOG_STARTS: self._render(self._all_starts()),
                checkpoints.HIGH_WATERMARKS: self._render(self.high_watermarks),
                checkpoints.CLEANER_OFFSETS: self._render(self.cleaner_offsets),
            },
            self._marks(),
        )

    def log_start_job(self, starts: Mapping[Partition, int]) -> CheckpointJob:
        """Write the log starts with these, and the other files only where marks have to go."""
        job = self.job() if self._marks() else CheckpointJob({}, [])
        self._ordered_starts.append((job, dict(starts)))
        job.files[checkpoints.LOG_STARTS] = self._render(self._all_starts())
        self.has_jobs = True
        return job

    def complete_log_starts(self, job: CheckpointJob, *, are_durable: bool) -> None:
        """A `log_start_job` has ended. Starts that are not durable are not in later checkpoints."""
        ended = next(starts for ordered, starts in self._ordered_starts if ordered is job)
        self._ordered_starts = [one for one in self._ordered_starts if one[0] is not job]
        if are_durable:
            for key, offset in ended.items():
                self.log_starts[key] = max(offset, self.log_starts.get(key, 0))

    def log_start(self, key: Partition) -> int:
        """Everything below was deleted, or is about to be."""
        return self._all_starts().get(key, 0)

    def _all_starts(self) -> dict[Partition, int]:
        if not self._ordered_starts:
            return self.log_starts
        found = dict(self.log_starts)
        for _, starts in self._ordered_starts:
            for key, offset in starts.items():
                found[key] = max(offset, found.get(key, 0))
        return found

    def write_recovery_points(self) -> None:
        data = self._render(self.recovery_points)
        write_checkpoints(self._disk, {checkpoints.RECOVERY_POINTS: data})

    def write_lowered(self) -> None:
        """Lower offsets reach the disk before the boot id: or a kill would seem to have lost what the host
        has lost.
        """
        files = {
            checkpoints.RECOVERY_POINTS: self._render(self.recovery_points),
            checkpoints.HIGH_WATERMARKS: self._render(self.high_watermarks),
        }
        write_checkpoints(self._disk, files)
        self.is_lowered = False

    def _render(self, offsets: dict[Partition, int]) -> bytes:
        """All that is written into checkpoints comes through here."""
        self._mentioned.update(offsets)
        return checkpoints.render_offsets(offsets)

    def _marks(self) -> list[str]:
        # a job may fail on a full disk: a log counts as fresh until its mark is seen to be gone
        self._fresh = {key: mark for key, mark in self._fresh.items() if self._disk.exists(mark)}
        return sorted(self._fresh.values())
