"""How far retention may go while groups are behind."""

from __future__ import annotations

import pytest

from headrace.machines.retention.lease import Loss, Stretch, deletable_before, losses

NOW_MS = 10_000
# three segments of ten records; the newest records are 3 s, 2 s and 1 s old
LOG = [Stretch(20, 100, 7_000), Stretch(30, 100, 8_000), Stretch(40, 100, 9_000)]


def allowed(committed: dict[str, int | None], *, max_ms: int = -1, max_bytes: int = -1) -> int:
    return deletable_before(LOG, 10, committed, max_ms=max_ms, max_bytes=max_bytes, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("committed", "offset"),
    [({"a": 25}, 25), ({"a": 25, "b": 15}, 15), ({"a": 40}, 40), ({"a": 3}, 10), ({"a": None, "b": 40}, 10)],
)
def test_the_group_that_is_furthest_behind_counts(committed: dict[str, int | None], offset: int) -> None:
    assert allowed(committed) == offset


@pytest.mark.parametrize(("max_ms", "offset"), [(3_000, 10), (2_999, 20), (1_500, 30), (0, 40), (-1, 10)])
def test_records_older_than_the_cap_do_not_wait(max_ms: int, offset: int) -> None:
    assert allowed({"a": None}, max_ms=max_ms) == offset
    assert allowed({"a": 25}, max_ms=max_ms) == max(25, offset)


@pytest.mark.parametrize(
    ("max_bytes", "offset"), [(300, 10), (201, 10), (200, 20), (100, 30), (0, 40), (-1, 10)]
)
def test_a_partition_larger_than_the_cap_does_not_wait(max_bytes: int, offset: int) -> None:
    assert allowed({"a": None}, max_bytes=max_bytes) == offset


def test_either_cap_ends_the_wait() -> None:
    assert allowed({"a": None}, max_ms=2_999, max_bytes=100) == 30


def test_what_each_group_loses() -> None:
    committed = {"a": 25, "b": None, "c": 30, "d": 5}
    assert losses(committed, 10, 30) == [Loss("a", 25, 29), Loss("b", 10, 29), Loss("d", 10, 29)]
    assert losses(committed, 10, 30)[0].offsets == 5
    assert losses(committed, 30, 30) == []
