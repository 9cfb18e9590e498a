"""Jobs of a log directory: writing its checkpoints, and removing the directory of a deleted log."""

from headrace.base.values import Value
from headrace.storage.checkpoint_sums import write_checkpoints
from headrace.storage.disk import Disk
from headrace.storage.jobs import JobKind

# All jobs that write a directory's checkpoints share a queue: what a later one says is on the disk last.
CHECKPOINT_QUEUE = "checkpoint"

# Name of the file that marks a log whose checkpoints still describe an earlier topic of the same name. The id
# of the log's topic follows, so that a late checkpoint of another topic does not remove the mark.
FRESH = ".headrace_fresh"


class CheckpointJob(Value):
    """Write the checkpoints of a directory, each whole or not at all; then take the marks off the logs about
    which they are right from now on.
    """

    files: dict[str, bytes]
    marks: list[str]  # their paths
    are_written: bool = False  # it has run, and the checkpoints are durable

    @property
    def kind(self) -> JobKind:
        return JobKind.IO

    def run(self, disk: Disk, /) -> None:
        write_checkpoints(disk, self.files)
        self.are_written = True
        for mark in self.marks:
            try:
                disk.remove(mark)
                disk.sync_dir(mark.rpartition("/")[0])
            except FileNotFoundError:
                continue  # the log was deleted meanwhile


class RemoveDirectoryJob(Value):
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
