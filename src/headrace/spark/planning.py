"""How much a batch reads, and how that is shared out between tasks. Numbers in, numbers out.

A stream's limit is shared between partitions by what waits in each, as Spark's Kafka connector does; none of
them is starved. Ranges are cut by bytes where somebody knows where bytes lie, else into equal parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from headrace.client.cluster import TopicPartition


class Range(NamedTuple):
    """What one task reads: [start, end) of a partition."""

    at: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Range]:
    """Those that hold something, in order."""
    found = [Range(at, starts[at], end) for at, end in sorted(ends.items()) if at in starts]
    return [each for each in found if each.size > 0]


# --- how much --------------------------------------------------------------------------------------------


def limited(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> dict[TopicPartition, int]:
    """Ends that leave out what exceeds the limit; every partition in which something waits moves on."""
    sizes = {each.at: each.size for each in ranges_between(starts, ends)}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(ends)
    reached = dict(ends)
    for at, size in sizes.items():
        share = offsets_max * size / total
        reached[at] = starts[at] + min(size, ceil(share) if share < 1 else floor(share))
    return reached


def waiting(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are to read."""
    return sum(each.size for each in ranges_between(starts, ends))


def is_too_early(count: int, offsets_min: int | None, waited_s: float, *, delay_max_s: float) -> bool:
    """Whether a batch of so many offsets waits for more."""
    return offsets_min is not None and count < offsets_min and waited_s < delay_max_s


# --- by whom ---------------------------------------------------------------------------------------------


def cut(whole: Range, places: Iterable[int]) -> list[Range]:
    """At these offsets; those outside are of no matter."""
    inside = sorted({place for place in places if whole.start < place < whole.end})
    edges = [whole.start, *inside, whole.end]
    return [Range(whole.at, first, last) for first, last in pairwise(edges)]


def cut_evenly(whole: Range, count: int) -> list[Range]:
    """Into so many parts whose sizes differ by one at most; never into empty ones."""
    count = max(1, min(count, whole.size))
    return cut(whole, [whole.start + whole.size * number // count for number in range(1, count)])


def cut_by_records(ranges: Sequence[Range], records_max: int | None) -> list[Range]:
    if records_max is None:
        return list(ranges)
    return [part for each in ranges for part in cut_evenly(each, ceil(each.size / records_max))]


def cut_to_count(ranges: Sequence[Range], count_min: int | None) -> list[Range]:
    """About so many in all: large ranges are cut in proportion, small ones stay whole."""
    if count_min is None or len(ranges) >= count_min:
        return list(ranges)
    small = {each for each in ranges if _share(each.size, sum(one.size for one in ranges), count_min) == 1}
    total = sum(each.size for each in ranges if each not in small)
    count = max(count_min - len(small), 1)
    return [
        part
        for each in ranges
        for part in ([each] if each in small else cut_evenly(each, _share(each.size, total, count)))
    ]


def _share(size: int, total: int, count: int) -> int:
    return max(1, round(size / total * count)) if total else 1
