"""The previous broker epoch, which a broker reports when it registers again (KIP-966).

The report means: this broker still has all records of that epoch. The metadata alone would not tell: after a
power loss, or on an older copy of a disk, the metadata log lacks the last registration, gets it again from
the other controllers, and would then look as if the records of that epoch were there. So a file
(`.headrace_complete_runs`) lists the runs of the broker whose records are all here, by their incarnation ids.
A run adds itself before it registers, beside the run before it: whichever of the two the controller knows
when the process is killed, the next start finds it. A start that finds a loss takes all others off the list.
What it does not report, the next one does not report either, if the controller has not heard of the first.

If there is no space to note a loss, the directories are not marked as recovered before it is written: the
next start finds the same loss.
"""

from contextlib import suppress

from headrace.machines.metadata.image import BrokerState
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import is_transient

COMPLETE_RUNS = ".headrace_complete_runs"
NO_EPOCH = -1


class PreviousEpoch:
    __slots__ = ("_disk", "_earlier", "_is_registered", "_is_unnoted", "_known", "_own", "_written")

    def __init__(self, disk: Disk, known: BrokerState | None, *, is_lost: bool) -> None:
        """`known` is the broker's last registration in the metadata log, which is on `disk`. `is_lost`: a log
        directory is new, or its host has stopped without a clean stop of the broker.
        """
        self._disk = disk
        self._known = known
        self._own = b""  # this run; b"" when it lacks records that the controller thinks it has
        self._is_registered = False
        self._written = b""  # what this run wrote last
        self._is_unnoted = is_lost  # a loss that a later start would not know of
        # runs before this one whose records are all here
        self._earlier: list[bytes] = [] if is_lost else _complete_runs(disk, known)
        if is_lost:
            try:
                self._note(is_synced=known is not None)  # else there is nothing to lose yet
            except OSError as error:
                if not is_transient(error):
                    raise

    def begin(self, incarnation_id: bytes) -> None:
        """This run is going to register. If it cannot be noted, the next start reports nothing."""
        self._own = incarnation_id
        if not self._is_unnoted:
            with suppress(OSError):
                self._write()

    def told(self, registered: BrokerState | None = None) -> int:
        """What the broker may report: the epoch of its last registration, as the newest metadata that it has
        say, or else its own metadata log.
        """
        last = registered or self._known
        return last.epoch if last is not None and last.incarnation_id in self._earlier else NO_EPOCH

    def lose(self) -> bool:
        """The logs that were opened lack records, or their starts. False: there was no space for the note."""
        self._earlier = []
        if self._is_registered:
            self._own = b""
        self._is_unnoted = True
        return self.is_loss_noted()

    def is_loss_noted(self) -> bool:
        """Whether a later start will know of a loss that this one has found; if there is space by now, the
        note is written.
        """
        try:
            self._note()
        except OSError:  # whatever it is, this disk will show it to those who need it for more than a note
            return False
        return True

    def registered(self, incarnation_id: bytes) -> None:
        """The metadata has the registration of this run: the controller knows by now what was lost. Not
        synced: after a power loss nobody asks. If it cannot be written, the next start finds this run beside
        the one before it, or reports nothing.
        """
        self._own = incarnation_id
        self._earlier = []
        self._is_registered = True
        self._is_unnoted = False
        with suppress(OSError):
            self._write()

    def sync(self) -> None:
        """For a clean stop, after which the file counts also on another boot."""
        with suppress(OSError):
            file = self._disk.open(COMPLETE_RUNS)
            try:
                file.sync()
            finally:
                file.close()
            self._disk.sync_dir("")

    def _note(self, *, is_synced: bool = True) -> None:
        if not self._is_unnoted:
            return
        if is_synced:
            self._written, content = b"", self._content()
            write_atomically(self._disk, COMPLETE_RUNS, content)
            self._written = content
        else:
            self._write()
        self._is_unnoted = False

    def _write(self) -> None:
        """A kill leaves the old or the new list. After a crash of the computer the file says nothing."""
        content = self._content()
        if content == self._written:
            return
        self._written = b""  # nobody knows, if it fails
        temporary = COMPLETE_RUNS + ".tmp"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(content)
        finally:
            file.close()
        self._disk.rename(temporary, COMPLETE_RUNS)
        self._written = content

    def _content(self) -> bytes:
        runs = [run for run in (*self._earlier, self._own) if run]
        return "".join(f"{run.hex()}\n" for run in runs).encode() or b"none\n"


def _complete_runs(disk: Disk, known: BrokerState | None) -> list[bytes]:
    """A directory that has no such file is of an earlier version: there the metadata log has to be believed.
    One that is damaged says nothing.
    """
    try:
        data = read_whole(disk, COMPLETE_RUNS)
    except FileNotFoundError:
        return [known.incarnation_id] if known is not None else []
    try:
        return [bytes.fromhex(line) for line in data.decode("ascii").split("\n")[:-1] if line != "none"]
    except ValueError:
        return []
