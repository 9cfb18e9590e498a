"""List of the files that a log must have, in its directory: `.headrace_files`.

    00000000000000000000.log
    00000000000000000000.txnindex
    00000000000000000812.log

Without it a log whose last segment is gone looks shorter, one whose first segments are gone looks as after
retention, and one without a transaction index looks as if nothing had been aborted. A file is listed after it
was made, and taken off the list before it is removed: whatever a kill leaves, a listed file that is missing
was lost. A file that is missing stays on the list until the log is cut before it.

Flushes sync the list with the files that are new in it. A lost host may have kept an older list than its
files: then files seem to be missing that were removed, and the log is read again from its leader for nothing.
A list that cannot be kept right for lack of space is removed, and written again later.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from headrace.storage.disk import Disk, read_whole
from headrace.storage.errors import is_transient

FILE_LIST = ".headrace_files"
_TEMPORARY = FILE_LIST + ".tmp"
_LISTED = re.compile(r"[0-9]{20}\.(?:log|txnindex)")


def log_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def transaction_index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.txnindex"


def base_of(name: str) -> int:
    return int(name[:20])


def listed_among(names: Iterable[str]) -> set[str]:
    """Those of a directory's files that belong on its list."""
    return {name for name in names if _LISTED.fullmatch(name)}


class FileList:
    __slots__ = ("_directory", "_disk", "_is_partial", "is_unsynced", "path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = f"{directory}/{FILE_LIST}"
        self._disk = disk
        self._directory = directory
        self._is_partial = True  # it may lack files that are there: the next write lists all
        self.is_unsynced = False

    def read(self) -> set[str]:
        """What has to be there. Nothing without a list; a line that a kill cut short counts for nothing."""
        return listed_among(self._text().split("\n")[:-1])

    def cover(self, *, believes: bool, is_durable: bool) -> None:
        """The log was opened: list all files that are there, and those that are missing only if the list is
        believed.
        """
        names = self._disk.list(self._directory)
        found = listed_among(names)
        text = self._text() if FILE_LIST in names else ""
        listed = listed_among(text.split("\n")[:-1])
        wanted = listed | found if believes else found
        if _rendered(wanted) != text:
            try:
                self._write(wanted)
            except OSError as error:
                if not is_transient(error):
                    raise
                self._is_partial = True
        elif text and not is_durable:
            self.is_unsynced = True

    def add(self, name: str) -> None:
        """The file was made."""
        try:
            if self._is_partial:
                self.complete()
                return
            self.is_unsynced = True
            file = self._disk.open(self.path, create=True)
            try:
                self._is_partial = True  # a part of the line may be written
                file.append(f"{name}\n".encode())
                self._is_partial = False
            finally:
                file.close()
        except OSError as error:
            self._is_partial = True
            if not is_transient(error):
                raise  # else: the next one is written with it

    def drop(self, is_gone: Callable[[int], bool]) -> None:
        """Before the files of these segments are removed, by their base offsets."""
        try:
            listed = self.read()
            left = {name for name in listed if not is_gone(base_of(name))}
            if left != listed:
                was_partial = self._is_partial
                self._write(left)
                self._is_partial = was_partial
        except OSError as error:
            if not is_transient(error):
                raise
            self.remove()

    def remove(self) -> None:
        """From now on nothing has to be there."""
        self._is_partial = True
        with suppress(FileNotFoundError):
            self._disk.remove(self.path)

    def complete(self) -> None:
        """List all files that are there, if some may not be listed."""
        if self._is_partial:
            names = self._disk.list(self._directory)
            listed = self.read() if FILE_LIST in names else set()
            self._write(listed | listed_among(names))

    def _text(self) -> str:
        try:
            return read_whole(self._disk, self.path).decode("ascii", "replace")
        except FileNotFoundError:
            return ""

    def _write(self, names: set[str]) -> None:
        temporary = f"{self._directory}/{_TEMPORARY}"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(_rendered(names).encode())
        finally:
            file.close()
        self._disk.rename(temporary, self.path)
        self._is_partial = False
        self.is_unsynced = True


def _rendered(names: set[str]) -> str:
    return "".join(f"{name}\n" for name in sorted(names))
