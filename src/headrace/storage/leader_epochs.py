"""Start offsets of leader epochs (KIP-101): replicas use them to find where their logs differ.

Kept in `leader-epoch-checkpoint`, which is rewritten when a batch of a new epoch is about to be appended, and
made durable with the next flush. An epoch without records may be lost, which harms nothing.
"""

from bisect import bisect_right

from headrace.storage.checkpoints import MalformedCheckpoint, parse_lines, render_lines
from headrace.storage.disk import Disk, read_whole

FILE_NAME = "leader-epoch-checkpoint"

NO_EPOCH = (-1, -1)


class LeaderEpochs:
    """Invariant: epochs and start offsets both rise strictly from entry to entry."""

    __slots__ = ("_epochs", "_starts", "is_changed")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.is_changed = False  # since it was last written

    @classmethod
    def read(cls, disk: Disk, path: str) -> "LeaderEpochs | None":
        """From the checkpoint; None when it is missing or makes no sense."""
        try:
            lines = parse_lines(read_whole(disk, path))
            return cls([(int(epoch), int(start)) for epoch, start in lines])
        except (FileNotFoundError, MalformedCheckpoint, ValueError):
            return None

    def write(self, disk: Disk, path: str) -> None:
        """Replace the checkpoint: safe from a kill now, from a lost host once flushed."""
        temporary = path + ".tmp"
        file = disk.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(self.render())
        finally:
            file.close()
        disk.rename(temporary, path)
        self.is_changed = False

    def render(self) -> bytes:
        return render_lines([f"{epoch} {start}" for epoch, start in self.entries()])

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start: int) -> None:
        """Epoch begins at `start`. What the newcomer contradicts, later epochs and later starts, is
        forgotten.
        """
        if epoch < 0 or (self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.is_changed = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ended.

        As Kafka answers: an epoch beyond all known is unknown, (-1, -1); one before all known ends, as far
        as we can tell, where the first known begins, for its records are gone.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            return epoch, self._starts[0]
        return self._epochs[at - 1], self._starts[at]

    def epoch_of(self, offset: int) -> int:
        """The epoch in which the offset was written; -1 when it is not known."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else -1

    def truncate_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.is_changed = True

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the log's start; the one that goes on there begins there now."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or (at == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:at]
        del self._starts[:at]
        self._starts[0] = start_offset
        self.is_changed = True
