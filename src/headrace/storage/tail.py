"""Positions of the last few hundred batches of a log: reads at the end need no index and no disk."""

from array import array
from bisect import bisect_left, bisect_right

# Kept between the half and the whole of it: 16 bytes each, nothing for a log that is not written to.
BATCHES_MAX = 512


class Tail:
    """All of them lie in the active segment, without a gap, up to its end."""

    __slots__ = ("first_offset", "lasts", "positions")

    def __init__(self) -> None:
        self.first_offset = 0  # of the first batch here; meaningless while empty
        self.lasts = array("q")  # last offset of each batch
        self.positions = array("q")  # where each begins

    def clear(self) -> None:
        del self.lasts[:]
        del self.positions[:]

    def shrink(self) -> None:
        """Forget the older half."""
        half = len(self.lasts) // 2
        self.first_offset = self.lasts[half - 1] + 1
        del self.lasts[:half]
        del self.positions[:half]

    def span(
        self, offset: int, limit_offset: int, end_position: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[int, int] | None:
        """Begin and end of the batches to read from `offset`, which is not below `first_offset`."""
        lasts, positions = self.lasts, self.positions
        first = bisect_left(lasts, offset)
        count = len(lasts)
        stop = count if lasts[-1] < limit_offset else bisect_left(lasts, limit_offset)
        if stop <= first:
            return None
        start = positions[first]
        end = end_position if stop == count else positions[stop]
        if end - start > max_bytes:
            fitting = bisect_right(positions, start + max_bytes, first, stop) - 1
            if fitting > first:
                end = positions[fitting]
            elif at_least_one:
                end = positions[first + 1] if first + 1 < count else end_position
            else:
                return None
        return start, end

    def position(self, offset: int, end_position: int) -> int:
        """Where the batch begins that holds `offset`; the end's position beyond the last."""
        at = bisect_left(self.lasts, offset)
        return self.positions[at] if at < len(self.positions) else end_position
