"""File of sorted entries of one size, the base of a segment's three indexes.

Entries wait in memory and reach the file in groups, since an index that is behind after a crash only means
that recovery walks a little more of the log. Look-ups search the file itself; nothing is kept in memory.
"""

from collections.abc import Iterator
from struct import Struct

from headrace.storage.disk import Disk, File
from headrace.storage.errors import is_transient
from headrace.storage.open_files import OpenFiles

# Entries read at once when a search has come this close: one page.
_BLOCK_BYTES = 4096


class EntryFile:
    __slots__ = ("_disk", "_files", "_is_torn", "_pending", "_pinned", "_stored", "path")

    entry_bytes: int

    def __init__(self, disk: Disk, files: OpenFiles, path: str) -> None:
        self._disk = disk
        self._files = files
        self.path = path
        self._pending = bytearray()
        self._pinned: File | None = None
        self._stored = -1  # entries in the file that count; -1: not asked yet
        self._is_torn = False  # the file holds more than those: to be cut before anything is added

    def __len__(self) -> int:
        if self._stored < 0:
            self._stored = self._file().size() // self.entry_bytes
        return self._stored + len(self._pending) // self.entry_bytes

    def is_whole(self) -> bool:
        """The file is there and its length a multiple of the entry's."""
        try:
            size = self._file().size()
        except FileNotFoundError:
            return False
        return size % self.entry_bytes == 0

    def create(self) -> None:
        """Create an empty file, whatever was there."""
        file = self._file(create=True)
        if file.size():
            file.truncate(0)
        self.begin()

    def begin(self) -> None:
        """There is an empty file of this name."""
        self._pending.clear()
        self._stored = 0
        self._is_torn = False

    def entry(self, index: int) -> bytes:
        """The bytes of one entry; negative counts from the end."""
        count = len(self)
        if index < 0:
            index += count
        size = self.entry_bytes
        if index >= self._stored:
            at = (index - self._stored) * size
            return bytes(self._pending[at : at + size])
        return self._file().read(index * size, size)

    def entries(self, start: int = 0) -> Iterator[bytes]:
        """All entries from `start` on, read a block at a time."""
        size = self.entry_bytes
        count = len(self)
        per_block = 16 * _BLOCK_BYTES // size
        while start < min(count, self._stored):
            wanted = min(per_block, self._stored - start)
            block = self._file().read(start * size, wanted * size)
            for at in range(0, len(block), size):
                yield block[at : at + size]
            start += wanted
        pending = bytes(self._pending)
        for at in range((start - self._stored) * size, len(pending), size):
            yield pending[at : at + size]

    def append_entry(self, entry: bytes) -> None:
        self._pending += entry

    def write_pending(self) -> None:
        """Write waiting entries to the file. On a full disk they go on waiting; no part of them counts."""
        self.mend()
        if not self._pending:
            return
        stored = len(self) - len(self._pending) // self.entry_bytes
        file = self._file(create=True)
        try:
            file.append(self._pending)
        except OSError as error:
            self._is_torn = True
            if is_transient(error):
                self._mend_if_possible()
            raise
        self._stored = stored + len(self._pending) // self.entry_bytes
        self._pending.clear()

    def mend(self) -> None:
        """Cut off what a failed write or a failed cut left behind the entries that count."""
        if self._is_torn:
            self._file().truncate(self._stored * self.entry_bytes)
            self._is_torn = False

    def _mend_if_possible(self) -> None:
        try:
            self.mend()
        except OSError as error:
            if not is_transient(error):
                raise  # else: before the next write

    def cut(self, count: int) -> None:
        """Keep the first `count` entries, and no half one after them. What is left counts, also when the
        file cannot be cut now: then it is cut before the next write.
        """
        if count < len(self):
            if count < self._stored:
                self._stored = count
                self._pending.clear()
                self._is_torn = True
            else:
                del self._pending[(count - self._stored) * self.entry_bytes :]
        if not self._is_torn:
            self._is_torn = self._file().size() != self._stored * self.entry_bytes
        self.mend()

    def sync(self) -> None:
        self.write_pending()
        self._file(create=True).sync()

    def count_up_to(self, key: Struct, at: int, target: int) -> int:
        """How many entries have a key of at most `target`; the key lies at byte `at` of each entry and
        never falls.
        """
        size = self.entry_bytes
        count = len(self)
        stored = self._stored
        pending = self._pending
        if pending and key.unpack_from(pending, at)[0] <= target:
            low, high = 0, count - stored
            while low < high:
                middle = (low + high) // 2
                if key.unpack_from(pending, middle * size + at)[0] <= target:
                    low = middle + 1
                else:
                    high = middle
            return stored + low
        low, high = 0, stored
        if not high:
            return 0
        file = self._file()
        per_block = _BLOCK_BYTES // size
        while high - low > per_block:
            middle = (low + high) // 2
            if key.unpack_from(file.read(middle * size, size), at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        block = file.read(low * size, (high - low) * size)
        first = low
        while low < high:
            middle = (low + high) // 2
            if key.unpack_from(block, (middle - first) * size + at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def pin(self) -> None:
        """Keep the file that has this name now."""
        self._pinned = self._file()

    def _file(self, *, create: bool = False) -> File:
        return self._pinned or self._files.file(self._disk, self.path, create=create)
