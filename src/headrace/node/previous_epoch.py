"""The previous broker epoch, which a broker reports when it registers again (KIP-966).

The report means: this broker still has all records of that epoch. A broker that may have lost records does
not report it, and counts as a replica that may lack acknowledged records. A start that finds a loss first
writes the epoch into a file (`.headrace_lost_epoch`), because the process may end before the controller knows
about the loss, and to the next start the directories would look as after a mere kill. If there is no space
for that file, the directories are not marked as recovered before it is written: the next start finds the same
loss.
"""

from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import is_transient

LOST_EPOCH = ".headrace_lost_epoch"
NO_EPOCH = -1


class PreviousEpoch:
    __slots__ = ("_disk", "_known", "_unwritten", "told")

    def __init__(self, disk: Disk, known: int, *, is_lost: bool) -> None:
        """`known` is the broker's last epoch in the metadata log, which is on `disk`. `is_lost`: a log
        directory is new, or its host has stopped without a clean stop of the broker.
        """
        self._disk = disk
        self._known = known
        self._unwritten = known if is_lost else NO_EPOCH  # of the note
        self.told = NO_EPOCH  # what the broker may tell
        if is_lost:
            try:
                self._write()
            except OSError as error:
                if not is_transient(error):
                    raise
        elif known != NO_EPOCH and known > _lost_epoch(disk):
            self.told = known

    def lose(self) -> bool:
        """The logs that were opened lack records, or their starts. False: there was no space for the note."""
        self.told = NO_EPOCH
        self._unwritten = self._known
        return self.is_loss_noted()

    def is_loss_noted(self) -> bool:
        """Whether a later start will know of a loss that this one has found; if there is space by now, the
        note is written.
        """
        try:
            self._write()
        except OSError:  # whatever it is, this disk will show it to those who need it for more than a note
            return False
        return True

    def _write(self) -> None:
        if self._unwritten != NO_EPOCH:
            write_atomically(self._disk, LOST_EPOCH, b"%d\n" % self._unwritten)
            self._unwritten = NO_EPOCH


def _lost_epoch(disk: Disk) -> int:
    """The newest of which something was lost."""
    try:
        return int(read_whole(disk, LOST_EPOCH))
    except FileNotFoundError:
        return NO_EPOCH
    except ValueError:  # it is damaged: nobody knows what it said
        return 2**63 - 1
