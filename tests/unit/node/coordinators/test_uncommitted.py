"""Which questions have to wait for records that are not committed."""

from __future__ import annotations

from typing import Any

from headrace.node.coordinators.uncommitted import ENTRIES_MIN, Uncommitted


def touched(machine: Any, change: str) -> list[str]:
    return [change]


def test_only_what_was_written_waits() -> None:
    uncommitted = Uncommitted(touched)
    uncommitted.written(None, ["a"], 10, 9)
    assert uncommitted.concerns(["b", "a"], 9)
    assert not uncommitted.concerns(["b"], 9)
    assert not uncommitted.concerns(["a"], 10)
    assert uncommitted.concerns_kind(str, 9)
    assert not uncommitted.concerns_kind(int, 9)
    assert not uncommitted.concerns_kind(str, 10)


def test_if_nobody_can_say_what_was_written_all_wait() -> None:
    uncommitted = Uncommitted(None)
    uncommitted.written(None, ["a"], 10, 9)
    assert uncommitted.concerns(["b"], 9)
    assert uncommitted.concerns_kind(int, 9)
    assert not uncommitted.concerns(["b"], 10)


def test_what_is_committed_is_forgotten_and_nothing_else() -> None:
    uncommitted = Uncommitted(touched)
    for number in range(3 * ENTRIES_MIN):
        uncommitted.written(None, [str(number)], number + 1, max(0, number - 5))
    last = 3 * ENTRIES_MIN
    assert all(uncommitted.concerns([str(number)], last - 6) for number in range(last - 6, last))
    assert len(uncommitted._ends) <= ENTRIES_MIN
