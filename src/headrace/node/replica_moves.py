"""Moves of partitions between the log directories of this node, one after the other.

    wanted ──▶ sealed segments are copied by jobs, a chunk at a time, while the log is written and read
           ──▶ the target's checkpoints expect it (a job)
           ──▶ at once: the active segment is sealed, the rest copied, the directories change names

No job rewrites segments of the directory during a move, so sealed segments do not change and are copied once,
unless the log is cut: then all are copied again. What retention deletes meanwhile is deleted from the copy,
too. The active segment is sealed and copied repeatedly, until little is left for the last step, which blocks
the event loop for some fsyncs. `storage/moving.py` describes what a crash leaves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.node.directory_assignments import DirectoryAssignments
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partition_locations import Awaited
from headrace.node.ports import Once, Ports
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE, RemoveDirectoryJob
from headrace.storage.errors import DiskFull, InconsistentTopicId, LogOffline, StorageError, is_transient
from headrace.storage.moving import (
    FUTURE,
    MOVED,
    ReadJob,
    SourceFailed,
    WriteJob,
    arrive,
    complete,
    moving_name,
)

if TYPE_CHECKING:
    from headrace.node.partitions import Partitions

QUEUE = "move"

# What the last step copies at once: some milliseconds' worth. A log that is written nearly as fast as it is
# copied would take long to get there, so that after some rounds more is allowed, some 50 milliseconds' worth.
REST_BYTES_MAX = 4 * 1024 * 1024
ROUNDS_MAX = 20
LATE_REST_BYTES_MAX = 64 * 1024 * 1024

# How long to wait for another who rewrites segments in the directory.
PAUSE_MS = 20


class ReplicaMoves:
    def __init__(
        self,
        partitions: "Partitions",
        directories: LogDirectories,
        assignments: DirectoryAssignments,
        ports: Ports,
        log_not_opened: Callable[[Now, Partition, Exception], None],
    ) -> None:
        """`log_not_opened` hears of a partition that has moved and whose log could not be opened there."""
        self.log_not_opened = log_not_opened
        self._partitions = partitions
        self._directories = directories
        self._assignments = assignments
        self._ports = ports
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._moves: dict[Partition, Move] = {}  # the first is under way, the others wait
        self._removals = 0  # of copies that nobody wants: the next move may use the same names
        self.rest_bytes_max = REST_BYTES_MAX

    def order(self, now: Now, partition: Partition, target: str) -> None:
        """Move it there; where it lies already, a move that was ordered before is called off."""
        before = self._moves.get(partition)
        if before is not None and before.target == target:
            return
        if before is not None:
            before.call_off(now)
        if target != partition.directory:
            self._moves[partition] = Move(
                self, partition, target, self._partitions, self._directories, self._ports
            )
            self._start_next(now)

    def _start_next(self, now: Now) -> None:
        first = next(iter(self._moves.values()), None)
        if first is not None and not first.is_started and not self._removals:
            first.start(now)

    def remove_copy(self, directory: str, name: str) -> None:
        """A copy that nobody wants any more goes, behind the jobs that write it. A start would take one that
        is whole for the partition's log if it found no other.
        """

        def removed(now: Now, result: Any) -> None:
            if isinstance(result, Exception):
                self._reports.report("warning", "removal_failed", directory=directory, error=str(result))
            if isinstance(result, OSError) and is_transient(result):
                Once(self._deadlines, now.after_ms(RETRY_MS), lambda now: remove())
                return
            self._removals -= 1
            self._start_next(now)

        def remove() -> None:
            self._jobs.run(directory, QUEUE, RemoveDirectoryJob(name), removed)

        self._removals += 1
        remove()

    def ended(self, now: Now, move: "Move") -> None:
        if self._moves.get(move.partition) is move:
            del self._moves[move.partition]
        self._start_next(now)

    def arrived(self, now: Now, move: "Move", removal: RemoveDirectoryJob) -> None:
        """What it left behind is removed once the metadata tells where the partition lies now."""
        partition = move.partition
        name = f"{partition.topic}-{partition.index}"
        self._reports.report(
            "info", "partition_moved", partition=name, source=move.source, target=move.target
        )

        def told(now: Now) -> None:
            delay_ms = partition.config.file_delete_delay_ms
            self._directories.remove_later(now, delay_ms, move.source, removal)

        self._assignments.tell(now, partition, told)

    def under_way(self) -> list["Move"]:
        """Also those that wait for their turn."""
        return list(self._moves.values())


class Move:
    """One partition on its way. Every job that comes back asks first whether it is still wanted."""

    def __init__(
        self,
        moves: ReplicaMoves,
        partition: Partition,
        target: str,
        partitions: "Partitions",
        directories: LogDirectories,
        ports: Ports,
    ) -> None:
        self._moves = moves
        self._partitions = partitions
        self._directories = directories
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self.partition = partition
        self.source = partition.directory
        self.target = target
        self.is_started = False
        self.is_done = False  # also for the deadlines' heap
        self.copied_bytes = 0
        self.copied_offset = 0  # the copy reaches at least so far
        self._old = f"{partition.topic}-{partition.index}"
        self._new = moving_name(partition.topic, partition.index, partition.topic_id, FUTURE)
        self._copied: set[str] = set()
        self._generation = -1  # of the log, whose sealed segments were copied
        self._waiting: list[str] = []
        self._rounds = 0
        self._expected_start = -1  # the log start that the target's checkpoints tell
        self._has_lock = False

    # --- beginning and end -------------------------------------------------------------------------------

    def start(self, now: Now) -> None:
        self.is_started = True
        self.expired(now)

    def call_off(self, now: Now) -> None:
        """Nobody wants it any more."""
        if self.is_started and not self._directories[self.target].is_offline:
            self._moves.remove_copy(self.target, self._new)
        self._end(now)

    def _end(self, now: Now) -> None:
        self.is_done = True
        if self._has_lock:
            self._has_lock = False
            self._directories.end_rewrite(self.source)
        self._moves.ended(now, self)

    def _is_wanted(self, now: Now) -> bool:
        partition = self.partition
        if self.is_done or self._lifecycle.is_stopping:
            return False
        if partition.is_deleted or partition.is_offline or self._directories[self.target].is_offline:
            self.call_off(now)
            return False
        return True

    def _failed(self, now: Now, directory: str, error: Exception) -> None:
        """A full disk ends the move and nothing else; a broken one costs its directory."""
        name = f"{self.partition.topic}-{self.partition.index}"
        self._reports.report("error", "move_failed", partition=name, directory=directory, error=str(error))
        if isinstance(error, LogOffline):
            is_broken = not self.partition.is_offline  # else its own log is damaged, and nothing beside it
        else:
            is_broken = isinstance(error, OSError) and not is_transient(error)
        if is_broken:
            self._directories.go_offline(now, directory, error)
        self.call_off(now)

    # --- copying -----------------------------------------------------------------------------------------

    def expired(self, now: Now) -> None:
        """Go on; also after a pause."""
        if not self._is_wanted(now):
            return
        directories = self._directories
        if not self._has_lock:
            if not directories.may_rewrite(self.source):
                self._pause(now)
                return
            directories.begin_rewrite(self.source)
            self._has_lock = True
        try:
            self._next_round(now)
        except StorageError as fault:
            self._failed(now, self.source, fault)

    def _pause(self, now: Now) -> None:
        self._deadlines.add(now.after_ms(PAUSE_MS), self)

    def _next_round(self, now: Now) -> None:
        log = self.partition.opened(now)
        self._directories.remove_segments(now, self.partition, log.settle_names(now.wall_ms))
        if log.generation != self._generation:
            self._generation = log.generation
            self._copied.clear()  # the log of a follower was cut: what is copied may not be there any more
        rest_bytes = log.bytes_without(self._copied)
        self._rounds += 1
        if rest_bytes <= (self._moves.rest_bytes_max if self._rounds <= ROUNDS_MAX else LATE_REST_BYTES_MAX):
            self._expect(now)
            return
        self._waiting = sorted(set(log.sealed_files()) - self._copied, reverse=True)
        if not self._waiting:
            log.roll(now.wall_ms)
            self._waiting = sorted(set(log.sealed_files()) - self._copied, reverse=True)
        self._read(now, 0)

    def _read(self, now: Now, position: int) -> None:
        name = self._waiting[-1]
        job = ReadJob(f"{self._old}/{name}", position)

        def read(now: Now, data: Any) -> None:
            if not self._is_wanted(now):
                return
            if isinstance(data, FileNotFoundError):
                self._waiting.pop()  # retention took it
                self._go_on(now)
            elif isinstance(data, Exception):
                self._failed(now, self.source, data)
            else:
                self._write(WriteJob(self._new, name, position, data))

        self._jobs.run(self.source, QUEUE, job, read)

    def _write(self, job: WriteJob) -> None:
        def written(now: Now, result: Any) -> None:
            if not self._is_wanted(now):
                return
            if isinstance(result, Exception):
                self._failed(now, self.target, result)
                return
            self.copied_bytes += len(job.data)
            if not job.is_last:
                self._read(now, job.position + len(job.data))
                return
            self._copied.add(self._waiting.pop())
            if job.name.endswith(".log"):
                self.copied_offset = int(job.name.partition(".")[0])
            self._go_on(now)

        self._jobs.run(self.target, QUEUE, job, written)

    def _go_on(self, now: Now) -> None:
        if self._waiting:
            self._read(now, 0)
        else:
            self.expired(now)

    # --- arriving ----------------------------------------------------------------------------------------

    def _expect(self, now: Now) -> None:
        """The target's checkpoints must tell where the log begins before it is there."""
        topic, index = self.partition.topic, self.partition.index
        directories = self._directories
        start = directories[self.source].log_start(topic, index)
        if start == self._expected_start:
            self._arrive(now)
            return
        job = directories[self.target].expect(topic, index, start)

        def written(now: Now, result: Any) -> None:
            if not self._is_wanted(now):
                return
            if isinstance(result, Exception):
                self._failed(now, self.target, result)
            else:
                self._expected_start = start
                self.expired(now)

        # in the queue of the other checkpoints: an older one must not be written over this one
        self._jobs.run(self.target, CHECKPOINT_QUEUE, job, written)

    def _arrive(self, now: Now) -> None:
        partition, partitions, directories = self.partition, self._partitions, self._directories
        source = directories[self.source]
        moved = moving_name(partition.topic, partition.index, partition.topic_id, MOVED)
        try:
            log = partition.opened(now)
            log.roll(now.wall_ms)
            log.checkpoint(now.wall_ms)
        except StorageError as fault:
            self._failed(now, self.source, fault)
            return
        disk = directories.disks[self.target]
        try:
            if disk.exists(self._old):
                raise InconsistentTopicId(f"{self.target} still holds the log of an earlier {self._old}")
            complete(directories.disks[self.source], self._old, disk, self._new, self._copied)
            RemoveDirectoryJob(moved).run(disk)  # what an earlier move left that could not be undone
            arrive(disk, self._new, moved)
        except SourceFailed as failed:
            self._failed(now, self.source, failed.error)
            return
        except (InconsistentTopicId, OSError) as error:
            self._failed(now, self.target, error)
            return
        try:
            job = source.doom(partition.topic, partition.index)
        except StorageError as error:
            self._new = moved  # what call_off removes
            self._failed(now, self.source, error)
            return
        partitions.relocate(partition, self.target)
        partitions.arrives(
            partition,
            Awaited(self.source, moved, log.log_end_offset, log.first_dirty_offset, tuple(log.damages)),
        )
        try:
            partition.moved(now)
        except DiskFull as fault:
            directories.storage_failed(now, partition, fault)  # whoever opens it next tries again
            self._moves.log_not_opened(now, partition, fault)
        except StorageError as fault:
            # its former name could not be removed for good, or its log not be opened
            self._failed(now, self.source if source.is_offline else self.target, fault)
            return
        directories.offsets_moved()
        self._moves.arrived(now, self, job)
        self._end(now)
