"""Segments of a log in order, and reads of what the tail in memory does not have.

Finding a batch is a search over base offsets, a search in one index, and a walk over at most one index
interval. A reader that continues where its last read ended needs none of them.
"""

from bisect import bisect_right
from collections.abc import Iterator

from headrace.records.batch import HEADER_BYTES, BatchHeader
from headrace.storage.disk import Disk, Span
from headrace.storage.errors import DamagedBatch
from headrace.storage.open_files import OpenFiles
from headrace.storage.segment import UNLIMITED, Segment

# Readers remembered per log: a few consumers and followers that catch up at the same time.
_READERS_MAX = 16


class Segments:
    __slots__ = ("_bases", "_continuations", "_directory", "_disk", "_files", "items")

    def __init__(self, disk: Disk, files: OpenFiles, directory: str) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory
        self.items: list[Segment] = []
        self._bases: list[int] = []
        self._continuations: dict[int, tuple[Segment, int]] = {}  # offset → where a read ended before it

    def __len__(self) -> int:
        return len(self.items)

    @property
    def active(self) -> Segment:
        return self.items[-1]

    def add(self, base_offset: int, wall_ms: int, *, is_new: bool = False) -> Segment:
        segment = Segment(self._disk, self._files, self._directory, base_offset, wall_ms, is_new=is_new)
        self.append(segment)
        return segment

    def append(self, segment: Segment) -> None:
        if self.items:
            self.items[-1].limit_offset = segment.base_offset
        self.items.append(segment)
        self._bases.append(segment.base_offset)

    def drop(self, segments: list[Segment]) -> None:
        """Take them out of the row; their files are the caller's business."""
        gone = {segment.base_offset for segment in segments}
        self.items = [segment for segment in self.items if segment.base_offset not in gone]
        self._bases = [segment.base_offset for segment in self.items]
        for segment, limit_offset in zip(self.items, [*self._bases[1:], UNLIMITED], strict=False):
            segment.limit_offset = limit_offset
        self.forget_readers()

    def forget_readers(self) -> None:
        self._continuations.clear()

    def number_of(self, offset: int) -> int:
        """Which segment holds the offset; 0 also for one before all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        return self.items[self.number_of(offset) :]

    def end_of(self, segment: Segment, log_end_offset: int) -> int:
        """Where the following segment begins, or the log ends."""
        number = bisect_right(self._bases, segment.base_offset)
        return self._bases[number] if number < len(self._bases) else log_end_offset

    def place(self, offset: int) -> tuple[Segment, int, int] | None:
        """Segment, position and size of the batch that holds `offset`, or of the first after it."""
        for segment in self.from_offset(offset):
            segment.load()
            placed = segment.locate(offset)
            if placed is not None:
                return segment, *placed
        return None

    def span(
        self, offset: int, limit_offset: int, log_end_offset: int, max_bytes: int, *, at_least_one: bool
    ) -> Span | None:
        """Whole batches of one segment, from the one that holds `offset`, all below `limit_offset`."""
        continued = self._continuations.pop(offset, None)
        if continued is not None and continued[0].is_sound(continued[1], offset):
            segment, start = continued
            size = 0
        else:
            placed = self.place(offset)
            if placed is None:
                return None
            segment, start, size = placed
        end = segment.sound_end(start) if segment.damaged else segment.size
        if limit_offset < self.end_of(segment, log_end_offset):
            try:
                stop = segment.locate(limit_offset)
                end = min(end, segment.size if stop is None else stop[0])
            except DamagedBatch as damaged:
                end = min(end, damaged.position)
        if end - start > max_bytes:
            end = min(segment.boundary(start, start + max_bytes), end)
            if end == start and at_least_one:
                end = start + (size or segment.batch_size(start))
                if not start < end <= segment.size:
                    raise DamagedBatch(segment.path, start, offset)
        if end <= start:
            return None
        if end + HEADER_BYTES <= segment.size:
            self._remember(segment, end)
        return Span(segment.file(), start, end - start)

    def _remember(self, segment: Segment, position: int) -> None:
        """The next read of this reader begins with the batch at `position`."""
        if len(self._continuations) >= _READERS_MAX:
            del self._continuations[next(iter(self._continuations))]
        self._continuations[segment.base_offset_at(position)] = segment, position

    def headers(self, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """Every batch from the one that holds `offset` on, to the end of the log."""
        for segment in self.from_offset(offset):
            segment.load()
            for position, header in segment.headers(self._first_from(segment, offset)):
                if header.last_offset >= offset:
                    yield segment, position, header

    @staticmethod
    def _first_from(segment: Segment, offset: int) -> int:
        """Where to begin so that nothing from `offset` on is left out."""
        if offset <= segment.base_offset:
            return 0
        try:
            placed = segment.locate(offset)
        except DamagedBatch as damaged:
            return damaged.position
        return segment.size if placed is None else placed[0]

    def size_bytes(self) -> int:
        return sum(segment.measure() for segment in self.items)
