"""Offset index of a segment: positions by offset, about one entry per `index.interval.bytes` of log.

    0 relative offset i32 · 4 position i32

An entry names the *last* offset of the batch that begins at its position. Both columns rise.
"""

from struct import Struct

from headrace.storage.disk import Disk
from headrace.storage.entry_file import EntryFile
from headrace.storage.open_files import OpenFiles

ENTRY = Struct(">ii")
_INT32 = Struct(">i")


class OffsetIndex(EntryFile):
    __slots__ = ("base_offset",)

    entry_bytes = ENTRY.size

    def __init__(self, disk: Disk, files: OpenFiles, path: str, base_offset: int) -> None:
        super().__init__(disk, files, path)
        self.base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.append_entry(ENTRY.pack(last_offset - self.base_offset, position))

    def at(self, index: int) -> tuple[int, int]:
        relative, position = ENTRY.unpack(self.entry(index))
        return self.base_offset + relative, position

    def floor(self, offset: int) -> int:
        """Position of the last known batch that ends at or before `offset`; 0 without one."""
        count = self.count_up_to(_INT32, 0, offset - self.base_offset)
        return self.at(count - 1)[1] if count else 0

    def floor_position(self, position: int) -> int:
        """The last known beginning of a batch at or before `position`; 0 without one."""
        count = self.count_up_to(_INT32, 4, position)
        return self.at(count - 1)[1] if count else 0

    def count_up_to_offset(self, offset: int) -> int:
        """How many entries have last offsets up to `offset`."""
        return self.count_up_to(_INT32, 0, offset - self.base_offset)

    def count_up_to_position(self, position: int) -> int:
        """How many entries have positions up to `position`."""
        return self.count_up_to(_INT32, 4, position)

    def first_cut(self, position: int, wanted: int) -> tuple[int, int] | None:
        """An offset that a batch begins with and about where it lies: at `wanted` or shortly before, but
        behind `position`; if there is none, the next one. None when nothing is known behind `position`.
        """
        number = self.count_up_to(_INT32, 4, wanted) - 1
        if number < 0 or self.at(number)[1] <= position:
            number = max(number + 1, self.count_up_to(_INT32, 4, position))
        if number >= len(self):
            return None
        last_offset, found = self.at(number)
        return last_offset + 1, found

    def cut_to(self, end_offset: int) -> None:
        """Forget the batches that reach to or beyond `end_offset`."""
        self.cut(self.count_up_to(_INT32, 0, end_offset - 1 - self.base_offset))
