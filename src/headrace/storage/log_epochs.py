"""Leader epochs of one log, read from their file when somebody asks for them.

A start with many logs reads none of these files: what recovery and the node find out before is kept, and
added when the file is read.
"""

from headrace.storage.disk import Disk
from headrace.storage.leader_epochs import FILE_NAME, LeaderEpochs
from headrace.storage.segments import Segments


class LogEpochs:
    __slots__ = ("_assigned", "_disk", "_known", "_path", "_recovered", "_recovered_end", "_segments")

    def __init__(self, disk: Disk, directory: str, segments: Segments) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._segments = segments
        self._known: LeaderEpochs | None = None  # None: not read yet
        # while they are not read:
        self._recovered_end: int | None = None  # where recovery found the end of the log
        self._recovered: list[tuple[int, int]] = []  # epochs and offsets of the batches it read
        self._assigned: tuple[int, int] | None = None  # epoch and offset

    @property
    def is_read(self) -> bool:
        return self._known is not None

    def read(self) -> LeaderEpochs:
        if self._known is None:
            self._known = LeaderEpochs.read(self._disk, self._path) or self._read_from_batches()
            self._add_what_was_learned(self._known)
        return self._known

    def _read_from_batches(self) -> LeaderEpochs:
        """Every batch carries its epoch, so a lost file costs time and nothing else."""
        epochs = LeaderEpochs()
        for _, _, header in self._segments.headers(0):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
        return epochs

    def _add_what_was_learned(self, epochs: LeaderEpochs) -> None:
        if self._recovered_end is not None:
            epochs.truncate_end(self._recovered_end)
        learned = [*self._recovered, self._assigned] if self._assigned is not None else self._recovered
        for epoch, offset in learned:
            if epoch > epochs.latest:
                epochs.assign(epoch, offset)
        self._recovered_end, self._recovered, self._assigned = None, [], None

    def note_recovered(self, end_offset: int, epochs: list[tuple[int, int]]) -> None:
        """Recovery has read batches up to the end of the log."""
        self._recovered_end, self._recovered = end_offset, epochs

    def assign(self, epoch: int, offset: int) -> None:
        """An epoch begins at `offset`. It reaches the disk with its first batch."""
        if self._known is None:
            self._assigned = epoch, offset
        elif epoch > self._known.latest:
            self._known.assign(epoch, offset)

    def write(self) -> bool:
        """Write the file, unless it says the same already; whether it was written."""
        epochs = self.read()
        if not epochs.is_changed:
            return False
        epochs.write(self._disk, self._path)
        return True
