"""Old versions of a table, and how long queries may need them."""

from __future__ import annotations

from headrace.machines.lake.history import outlived


def test_a_version_counts_from_when_it_was_replaced() -> None:
    """The one of 10 was the newest until 50: a query that began at 49 reads it."""
    assert outlived([10, 50, 90], since_ms=50) == []
    assert outlived([10, 50, 90], since_ms=51) == [0]
    assert outlived([10, 50, 90], since_ms=1000) == [0, 1]


def test_the_newest_version_is_always_needed() -> None:
    assert outlived([], since_ms=1000) == []
    assert outlived([10], since_ms=1000) == []
