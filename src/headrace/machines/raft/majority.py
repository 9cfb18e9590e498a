"""Majorities of voters: how many votes are one, and the offset that a majority has, which is committed."""

from collections.abc import Collection


def majority_of(voters: int) -> int:
    """The smallest number of voters of which two groups always share one."""
    return voters // 2 + 1


def majority_offset(ends: Collection[int]) -> int:
    """The largest offset up to which more than half of the voters hold the log durably.

    Sorted from the largest, the end in the middle is reached by itself and by all before it: with five voters
    the third, with four the third too, with one the only one.
    """
    assert ends, "a quorum has at least one voter"
    descending = sorted(ends, reverse=True)
    return descending[len(ends) // 2]
