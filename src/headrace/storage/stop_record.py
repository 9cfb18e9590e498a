"""Record of how the last run in a log directory stopped: the clean marker, the boot id, and notes about I/O
errors.

After a clean stop or a kill the new boot id is written at once. After a crash of the computer it is written
only when every log was recovered: otherwise a second crash would look like a killed process.
"""

from collections.abc import Callable, Iterable, Set

from headrace.base.ids import id_text
from headrace.storage.checkpoint_sums import CLEAN_MARKER_CONTENT
from headrace.storage.checkpoints import META_PROPERTIES
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import is_transient
from headrace.storage.recovery import Trust

CLEAN_MARKER = ".kafka_cleanshutdown"
BOOT_ID = ".headrace_boot_id"
# Replaces the boot id after an I/O error: the page cache may hold bytes that the disk never got.
_DISTRUSTED = "distrusted "
# The same about other directories, one directory id and boot id per line, where they could not be written to.
DISTRUSTED_OTHERS = ".headrace_distrusted"


def distrusted_ids(disks: Iterable[Disk], boot_id: str) -> set[str]:
    """Directories about which others noted an I/O error on this boot."""
    found: set[str] = set()
    for disk in disks:
        try:
            lines = read_whole(disk, DISTRUSTED_OTHERS).decode(errors="replace").splitlines()
        except OSError:
            continue
        found.update(line.partition(" ")[0] for line in lines if line.partition(" ")[2] == boot_id)
    return found


class StopRecord:
    __slots__ = (
        "_boot_id",
        "_disk",
        "_has_marker",
        "is_boot_marked",
        "is_distrusted",
        "is_doubted",
        "is_same_boot",
        "may_vouch",
        "trust",
    )

    def __init__(self, disk: Disk, boot_id: str) -> None:
        """Nothing is trusted: `read` says what can be."""
        self._disk = disk
        self._boot_id = boot_id
        self._has_marker = False  # of a clean stop
        self.trust: Trust = "lost"
        self.is_same_boot = False  # the last run was on this boot
        self.is_distrusted = False  # the last run on this boot met an I/O error
        self.is_boot_marked = True  # the boot id on the disk is this one
        self.is_doubted = False  # this run has noted that the next one on this boot must not trust it
        # False: what this start has found to be lost is written nowhere else yet
        self.may_vouch: Callable[[], bool] = lambda: True

    def read(self, names: Set[str], directory_id: bytes, distrusted: Set[str]) -> None:
        """`names` are the entries of the directory."""
        known = self._read_boot_id() if BOOT_ID in names else ""
        self._has_marker = CLEAN_MARKER in names
        self.is_same_boot = known == self._boot_id
        self.is_distrusted = known == _DISTRUSTED + self._boot_id or id_text(directory_id) in distrusted
        if self.is_distrusted:
            self.is_same_boot = False
            self.trust = "lost"
        elif self._has_marker:
            self.trust = "clean"
        else:
            self.trust = "killed" if self.is_same_boot else "lost"

    def _read_boot_id(self) -> str:
        data = read_whole(self._disk, BOOT_ID)
        if not data.endswith(b"\n"):  # a note of distrust that the failing disk has cut short
            return _DISTRUSTED + self._boot_id
        return data.decode(errors="replace").strip()

    @property
    def vouches_for_all(self) -> bool:
        """After a clean stop on this boot no log has to be looked at."""
        return self.trust == "clean" and self.is_same_boot

    def mark_boot(self) -> None:
        """If there is no space, a start on this boot looks at everything once more."""
        if self.is_doubted or not self.may_vouch():
            return
        try:
            # The directory is synced also for names that a killed process left in the page cache only, such
            # as a partition's: the next flush of its log promises that they are durable. The first start in a
            # directory of nobody finds none of them.
            is_new = not self._disk.exists(META_PROPERTIES)
            write_atomically(self._disk, BOOT_ID, f"{self._boot_id}\n".encode(), sync_name=not is_new)
        except OSError as error:
            if not is_transient(error):
                raise
        else:
            self.is_boot_marked = True

    def remove_marker(self) -> None:
        """Before anything is appended, and for good. It may be tried again."""
        if self._has_marker:
            if self._disk.exists(CLEAN_MARKER):
                self._disk.remove(CLEAN_MARKER)
            self._disk.sync_dir("")
            self._has_marker = False

    def write_marker(self) -> None:
        if not self.may_vouch():
            return  # the next start finds what this one has found
        write_atomically(self._disk, CLEAN_MARKER, CLEAN_MARKER_CONTENT)

    def distrust(self) -> bool:
        """After an I/O error: a start on the same boot writes again what was not flushed before. Not synced,
        since another boot trusts no page cache anyway; False when the disk refuses even that.
        """
        self.is_doubted = True
        return self._try_to_write(BOOT_ID, f"{_DISTRUSTED}{self._boot_id}\n", is_new=True)

    def distrust_other(self, directory_id: bytes) -> None:
        """Note here what another directory can no longer take."""
        self._try_to_write(DISTRUSTED_OTHERS, f"{id_text(directory_id)} {self._boot_id}\n", is_new=False)

    def _try_to_write(self, path: str, text: str, *, is_new: bool) -> bool:
        try:
            file = self._disk.open(path, create=True)
            try:
                if is_new:
                    file.truncate(0)
                file.append(text.encode())
            finally:
                file.close()
        except OSError:
            return False
        return True

    def settle_others(self, recovered: Set[bytes]) -> None:
        """Directories that were recovered since are trusted again."""
        if not self._disk.exists(DISTRUSTED_OTHERS):
            return
        lines = read_whole(self._disk, DISTRUSTED_OTHERS).decode(errors="replace").splitlines()
        texts = {id_text(each) for each in recovered}
        left = [line for line in lines if line.partition(" ")[0] not in texts]
        if left:
            write_atomically(self._disk, DISTRUSTED_OTHERS, "".join(f"{one}\n" for one in left).encode())
        else:
            self._disk.remove(DISTRUSTED_OTHERS)
