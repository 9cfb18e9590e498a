"""Retention that waits for groups: what a named group has not committed stays, up to a cap.

`headrace.retention.waits.for` names the groups. Retention decides as usual what is old or large enough to be
deleted; of that it keeps what one of the groups has not committed. The wait ends at one of two caps: the age
of the records, or the size of the partition. A group whose offset is not known counts as one that has
committed nothing: whatever the reason, its records are there when it comes back, up to the same caps.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

NO_CAP = -1

# What groups have committed, by name. None: nothing, or it could not be found out.
Committed = Mapping[str, int | None]


class Stretch(NamedTuple):
    """A segment of the log, from the end of the one before it."""

    end_offset: int
    size_bytes: int
    newest_ms: int


class Loss(NamedTuple):
    """Records that a group had not committed when they were deleted."""

    group: str
    first: int
    last: int

    @property
    def offsets(self) -> int:
        return self.last - self.first + 1


def deletable_before(
    stretches: Sequence[Stretch],
    log_start: int,
    committed: Committed,
    *,
    max_ms: int,
    max_bytes: int,
    now_ms: int,
) -> int:
    """The offset before which retention may delete: all groups have committed up to there, or a cap says so.

    Whole segments are deleted, so a cap counts when all records of a segment are older, and when the
    partition without the segment still has `max_bytes`.
    """
    needed_from = min(log_start if offset is None else offset for offset in committed.values())
    excess = sum(stretch.size_bytes for stretch in stretches) - max_bytes if max_bytes >= 0 else NO_CAP
    capped = log_start
    for stretch in stretches:
        is_old = max_ms >= 0 and now_ms - stretch.newest_ms > max_ms
        is_large = excess >= stretch.size_bytes > 0
        if not is_old and not is_large:
            break
        excess -= stretch.size_bytes
        capped = stretch.end_offset
    return max(log_start, needed_from, capped)


def losses(committed: Committed, old_start: int, new_start: int) -> list[Loss]:
    """What each group loses when a log that began at `old_start` begins at `new_start`."""
    found = []
    for group, offset in sorted(committed.items()):
        first = old_start if offset is None else max(old_start, offset)
        if first < new_start:
            found.append(Loss(group, first, new_start - 1))
    return found
