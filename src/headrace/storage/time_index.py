"""Time index of a segment: offsets by timestamp.

    0 timestamp i64 · 8 relative offset i32

An entry says: the largest timestamp so far, and the last offset of the batch that has it. Both columns rise,
so an entry is added only for a larger timestamp; it comes with an entry of the offset index, and once more
when the segment is sealed or closed.
"""

from struct import Struct

from headrace.storage.disk import Disk
from headrace.storage.entry_file import EntryFile
from headrace.storage.open_files import OpenFiles

ENTRY = Struct(">qi")
_TIMESTAMP = Struct(">q")
_OFFSET = Struct(">i")


class TimeIndex(EntryFile):
    __slots__ = ("_last_timestamp", "base_offset")

    entry_bytes = ENTRY.size

    def __init__(self, disk: Disk, files: OpenFiles, path: str, base_offset: int) -> None:
        super().__init__(disk, files, path)
        self.base_offset = base_offset
        self._last_timestamp: int | None = None  # of the last entry, once known

    def create(self) -> None:
        super().create()
        self._last_timestamp = -1

    def last(self) -> tuple[int, int]:
        """The largest timestamp and its offset; (-1, base offset) without one, as in Kafka."""
        if not len(self):
            return -1, self.base_offset
        return self.at(-1)

    def at(self, index: int) -> tuple[int, int]:
        timestamp, relative = ENTRY.unpack(self.entry(index))
        return timestamp, self.base_offset + relative

    def add(self, timestamp: int, offset: int) -> None:
        """Nothing happens unless the timestamp is larger than all before."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last()[0]
        if timestamp > self._last_timestamp:
            self.append_entry(ENTRY.pack(timestamp, offset - self.base_offset))
            self._last_timestamp = timestamp

    def last_below(self, timestamp: int) -> int:
        """The offset of the last entry whose timestamp is smaller; the one before the segment without one."""
        count = self.count_up_to(_TIMESTAMP, 0, timestamp - 1)
        return self.at(count - 1)[1] if count else self.base_offset - 1

    def cut_to(self, end_offset: int) -> None:
        """Forget entries of offsets at or beyond `end_offset`."""
        self.cut(self.count_up_to(_OFFSET, 8, end_offset - 1 - self.base_offset))
        self._last_timestamp = None
