"""Index of the aborted transactions that ended in a segment, in the order of their abort markers.

    0 version i16 = 0 · 2 producer id i64 · 10 first offset i64 · 18 last offset i64 · 26 last stable offset
    i64

The last stable offset is the one that the marker left behind: a reader that has come to an entry whose last
stable offset is at or beyond its upper bound needs to look no further. The file appears with the first
abort.
"""

from struct import Struct
from typing import NamedTuple

from headrace.storage.disk import Disk
from headrace.storage.entry_file import EntryFile
from headrace.storage.open_files import OpenFiles

ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">q")
_LAST_OFFSET_AT = 18


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(EntryFile):
    __slots__ = ("_cut_offset", "_is_absent")

    entry_bytes = ENTRY.size

    def __init__(self, disk: Disk, files: OpenFiles, path: str) -> None:
        super().__init__(disk, files, path)
        self._is_absent = False  # as far as we know
        self._cut_offset: int | None = None  # of a cut that failed: nothing at or beyond it counts

    def __len__(self) -> int:
        if self._cut_offset is not None:
            self.cut_to(self._cut_offset)
        try:
            return super().__len__()
        except FileNotFoundError:
            self._stored = 0
            self._is_absent = True
            return len(self._pending) // self.entry_bytes

    def add(self, aborted: AbortedTransaction) -> None:
        """Written at once: these are rare, and a reader must not miss one after a crash."""
        len(self)  # a cut that failed is made before
        self.append_entry(ENTRY.pack(0, *aborted))
        try:
            self.write_pending()
        finally:
            # also a write that failed may have made the file
            self._is_absent = self._is_absent and not self._disk.exists(self.path)

    def pin(self) -> None:
        if len(self):
            super().pin()

    def at(self, index: int) -> AbortedTransaction:
        return AbortedTransaction(*ENTRY.unpack(self.entry(index))[1:])

    def all(self) -> list[AbortedTransaction]:
        return [AbortedTransaction(*ENTRY.unpack(entry)[1:]) for entry in self.entries()]

    def overlapping(self, fetch_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that touch [fetch_offset, upper_offset), and whether later entries cannot matter."""
        found: list[AbortedTransaction] = []
        for entry in self.entries(self.count_up_to(_LAST_OFFSET, _LAST_OFFSET_AT, fetch_offset - 1)):
            aborted = AbortedTransaction(*ENTRY.unpack(entry)[1:])
            if aborted.first_offset < upper_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def cut_to(self, end_offset: int) -> None:
        """Forget transactions whose marker lies at or beyond `end_offset`. If the file cannot be read now, it
        is cut before it is asked, or anything is added: the log has other records there by then.
        """
        failed_offset, self._cut_offset = self._cut_offset, None
        if failed_offset is not None:
            end_offset = min(end_offset, failed_offset)
        try:
            self.cut(self.count_up_to(_LAST_OFFSET, _LAST_OFFSET_AT, end_offset - 1))
        except OSError:
            self._cut_offset = end_offset
            raise

    def recover(self, end_offset: int) -> None:
        """After a loss of power: keep what was durable, transactions whose marker lies below `end_offset`.

        Of an entry behind them only a part may have reached the disk, with zeros for the rest. So it may name
        any offset: it is known by its offsets, which do not rise.
        """
        count, before = 0, -1
        for entry in self.entries():
            aborted = AbortedTransaction(*ENTRY.unpack(entry)[1:])
            if not aborted.first_offset < aborted.last_offset < end_offset or aborted.last_offset <= before:
                break
            count, before = count + 1, aborted.last_offset
        self.cut(count)

    def cut(self, count: int) -> None:
        if self._is_absent:
            self._pending.clear()
        else:
            super().cut(count)
