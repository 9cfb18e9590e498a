"""Entries that clients cause without end: a few are written, the others are counted."""

from __future__ import annotations

from headrace.machines.security.repetitions import (
    KINDS_MAX,
    WRITTEN_MAX,
    WRITTEN_OF_KIND_MAX,
    Repeated,
    Repetitions,
)


def test_a_few_of_each_kind_are_written_and_the_others_counted() -> None:
    repetitions = Repetitions()
    admitted = [repetitions.admits("a") for _ in range(1_000)]
    assert admitted == [True] * WRITTEN_OF_KIND_MAX + [False] * (1_000 - WRITTEN_OF_KIND_MAX)
    assert repetitions.admits("b")
    assert repetitions.end() == [Repeated("a", 1_000 - WRITTEN_OF_KIND_MAX)]


def test_after_the_end_of_a_period_everything_begins_again() -> None:
    repetitions = Repetitions()
    for _ in range(100):
        repetitions.admits("a")
    repetitions.end()
    assert repetitions.is_empty
    assert repetitions.admits("a")
    assert repetitions.end() == []


def test_whoever_varies_the_kind_gets_no_more_lines() -> None:
    """A guesser that changes user and address with each try: the table of kinds and the lines have limits."""
    repetitions = Repetitions()
    tries = 100_000
    written = sum(repetitions.admits(number) for number in range(tries) for _ in range(3))
    repeated = repetitions.end()
    assert written == WRITTEN_MAX
    assert len(repeated) <= KINDS_MAX + 1
    assert repeated[-1].kind is None
    assert written + sum(one.times for one in repeated) == tries * 3


def test_a_kind_that_came_when_there_was_no_line_left_is_counted_by_its_name() -> None:
    repetitions = Repetitions()
    for number in range(WRITTEN_MAX // WRITTEN_OF_KIND_MAX):
        for _ in range(WRITTEN_OF_KIND_MAX):
            assert repetitions.admits(number)
    assert not repetitions.admits("late")
    assert Repeated("late", 1) in repetitions.end()
