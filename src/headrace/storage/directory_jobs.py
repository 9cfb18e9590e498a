"""What takes long in a data directory: writing its checkpoints, removing a log that nobody wants any more."""

from dataclasses import dataclass

from headrace.storage.checkpoint_sums import write_checkpoints
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind

# All jobs that write a directory's checkpoints share a lane: what a later one says is on the disk last.
CHECKPOINT_LANE = "checkpoint"

# Marks a log about which the checkpoints still speak of an earlier topic of its name.
FRESH = ".headrace_fresh"


@dataclass(slots=True)
class CheckpointJob:
    """Write the checkpoints of a directory, each whole or not at all; then take the marks off the logs about
    which they are right from now on.
    """

    files: dict[str, bytes]
    fresh: list[str]  # directories of those logs

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> None:
        write_checkpoints(disk, self.files)
        for directory in self.fresh:
            try:
                disk.remove(f"{directory}/{FRESH}")
                disk.sync_dir(directory)
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
            for name in disk.list(self.directory):
                disk.remove(f"{self.directory}/{name}")
            disk.remove(self.directory)
        except FileNotFoundError:
            return
