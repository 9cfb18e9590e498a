"""Offset ranges: how many offsets a query reads, and how ranges are split into tasks.

A stream's limit is divided between partitions in proportion to their backlogs, as Spark's Kafka connector
does, so that every partition with a backlog advances. This module has no IO: numbers in, numbers out.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor

from headrace.client.cluster import OffsetRange, TopicPartition

Range = OffsetRange  # which one task reads


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Range]:
    """Return the non-empty ranges, ordered by partition."""
    found = [Range(at, starts[at], end) for at, end in sorted(ends.items()) if at in starts]
    return [each for each in found if each.size > 0]


# --- limits ----------------------------------------------------------------------------------------------


def limit_ends(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> dict[TopicPartition, int]:
    """Lower the ends to a total of `offsets_max`; every partition with a backlog advances by at least one."""
    sizes = {each.partition: each.size for each in ranges_between(starts, ends)}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(ends)
    limited = dict(ends)
    for at, size in sizes.items():
        share = offsets_max * size / total
        limited[at] = starts[at] + min(size, ceil(share) if share < 1 else floor(share))
    return limited


def count_offsets(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(each.size for each in ranges_between(starts, ends))


def is_too_small(count: int, offsets_min: int | None, waited_s: float, *, delay_max_s: float) -> bool:
    """Whether a micro-batch of `count` offsets should wait for more records."""
    return offsets_min is not None and count < offsets_min and waited_s < delay_max_s


# --- splitting -------------------------------------------------------------------------------------------


def split_at(whole: Range, offsets: Iterable[int]) -> list[Range]:
    """Split at these offsets; offsets outside the range are ignored."""
    inside = sorted({offset for offset in offsets if whole.start < offset < whole.end})
    edges = [whole.start, *inside, whole.end]
    return [Range(whole.partition, first, last) for first, last in pairwise(edges)]


def split_evenly(whole: Range, count: int) -> list[Range]:
    """Split into `count` non-empty parts whose sizes differ by at most one; fewer if there are fewer
    offsets.
    """
    count = max(1, min(count, whole.size))
    return split_at(whole, [whole.start + whole.size * number // count for number in range(1, count)])


def split_by_records(ranges: Sequence[Range], records_max: int | None) -> list[Range]:
    if records_max is None:
        return list(ranges)
    return [part for each in ranges for part in split_evenly(each, ceil(each.size / records_max))]


def split_to_count(ranges: Sequence[Range], count_min: int | None) -> list[Range]:
    """Split large ranges in proportion to their sizes until there are about `count_min` in all."""
    if count_min is None or len(ranges) >= count_min:
        return list(ranges)
    small = {each for each in ranges if _share(each.size, sum(one.size for one in ranges), count_min) == 1}
    total = sum(each.size for each in ranges if each not in small)
    count = max(count_min - len(small), 1)
    return [
        part
        for each in ranges
        for part in ([each] if each in small else split_evenly(each, _share(each.size, total, count)))
    ]


def _share(size: int, total: int, count: int) -> int:
    return max(1, round(size / total * count)) if total else 1
