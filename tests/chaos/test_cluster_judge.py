"""The judge of a cluster's histories finds what was planted."""

from __future__ import annotations

import pytest

from chaos.cluster_judge import Handled, Log, Progress, Written, copy_violations

GOOD: Log = {0: [(0, b"a-0"), (1, b"b-0"), (2, b"a-2")], 1: [(0, b"a-1"), (1, b"b-1")]}


def written() -> Written:
    history = Written()
    history.sent |= {"a": 3, "b": 2}
    history.acknowledged = {value: (p, offset) for p, records in GOOD.items() for offset, value in records}
    return history


def test_a_good_log_has_no_violations() -> None:
    assert list(written().violations(GOOD)) == []


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ({**GOOD, 1: [(0, b"a-1")]}, "b'b-1', acknowledged at (1, 1), is lost"),
        ({**GOOD, 1: [*GOOD[1], (2, b"b-1")]}, "b'b-1' is at [(1, 1), (1, 2)]"),
        ({**GOOD, 1: [*GOOD[1], (3, b"b-2")]}, "partition 1 has offset 3 where 2 belongs"),
        ({**GOOD, 1: [*GOOD[1], (2, b"b-9")]}, "nobody sent b'b-9'"),
        ({**GOOD, 0: [(0, b"a-2"), (1, b"b-0"), (2, b"a-0")]}, "b'a-0' at 0:2 is behind a-2"),
        ({0: GOOD[1], 1: GOOD[0]}, "b'a-0', acknowledged at (0, 0), is at [(1, 0)]"),
    ],
)
def test_records(log: Log, told: str) -> None:
    assert told in list(written().violations(log))


def handled(places: list[tuple[int, int]]) -> Handled:
    history = Handled("g")
    for partition, offset in places:
        history.handle(partition, offset, GOOD[partition][offset][1])
    return history


def test_a_group_may_see_records_again() -> None:
    history = handled([(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (0, 2), (1, 1)])
    assert list(history.violations(GOOD)) == []
    assert history.has_all({0: 3, 1: 2})
    assert not history.has_all({0: 3, 1: 3})


def test_a_group_must_not_skip() -> None:
    history = handled([(0, 0), (0, 2), (1, 0), (1, 1)])
    assert list(history.violations(GOOD)) == ["g skips from 0:1 to 0:2", "g never saw b'b-0' at (0, 1)"]


def test_a_record_does_not_change() -> None:
    history = handled([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
    history.handle(1, 1, b"b-7")
    assert list(history.violations(GOOD)) == ["g saw b'b-1' and b'b-7' at 1:1"]
    other = {**GOOD, 1: [(0, b"a-1"), (1, b"b-7")]}
    assert "g saw b'b-1' at (1, 1), which is b'b-7' now" in list(history.violations(other))


def test_offsets_do_not_go_back() -> None:
    progress = Progress("g")
    progress.committed(0, 5)
    before = progress.lowest()
    progress.committed(0, 7)
    progress.told(before, {0: 5})
    assert progress.found == []
    progress.told(progress.lowest(), {0: 6})
    assert progress.found == ["g: offset 6 of partition 0 was told, 7 had been"]


@pytest.mark.parametrize(
    ("partition", "is_wrong"),
    [
        ([(0, b"a-0 copied"), (1, b"b-0 copied"), (3, b"a-2 copied")], False),
        ([(0, b"a-0 copied"), (1, b"b-0 copied")], True),
        ([(0, b"a-0 copied"), (1, b"b-0 copied"), (3, b"b-0 copied"), (4, b"a-2 copied")], True),
        ([(0, b"b-0 copied"), (1, b"a-0 copied"), (3, b"a-2 copied")], True),
    ],
)
def test_copies(partition: list[tuple[int, bytes]], is_wrong: bool) -> None:
    assert bool(list(copy_violations("copy", {0: GOOD[0]}, {0: partition}))) == is_wrong
