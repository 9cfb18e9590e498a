"""What takes long in a data directory: writing its checkpoints, removing a log that nobody wants any more."""

from dataclasses import dataclass

from headrace.storage.checkpoint_sums import write_checkpoints
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind

# All jobs that write a directory's checkpoints share a lane: what a later one says is on the disk last.
CHECKPOINT_LANE = "checkpoint"

# Marks a log about which the checkpoints still speak of an earlier topic of its name. The mark's name goes on
# with the id of the log's own topic: a late checkpoint of another topic does not remove it.
FRESH = ".headrace_fresh"


@dataclass(slots=True)
class CheckpointJob:
    """Write the checkpoints of a directory, each whole or not at all; then take the marks off the logs about
    which they are right from now on.
    """

    files: dict[str, bytes]
    marks: list[str]  # their paths

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> None:
        write_checkpoints(disk, self.files)
        for mark in self.marks:
            try:
                disk.remove(mark)
                disk.sync_dir(mark.rpartition("/")[0])
            except FileNotFoundError:
                continue  # the log was deleted meanwhile


@dataclass(slots=True)
class RemoveDirectoryJob:
    """Remove a partition's directory with all its files; what is gone already is fine."""

    directory: str

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> None:
        try:
            names = disk.list(self.directory)
            disk.sync_dir("")  # or the partition's own name could come back, without some of its files
            for name in names:
                disk.remove(f"{self.directory}/{name}")
            disk.remove(self.directory)
        except FileNotFoundError:
            return
