"""How much a micro-batch reads and how ranges are shared out, without Spark and without a broker."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.cluster import TopicPartition
from headrace.spark.ranges import (
    Range,
    count_offsets,
    is_too_small,
    limit_ends,
    ranges_between,
    split_at,
    split_by_records,
    split_evenly,
    split_to_count,
)

A, B, C = (TopicPartition("t", number) for number in range(3))
RANGES = st.lists(st.integers(1, 500), min_size=1, max_size=6).map(
    lambda sizes: [Range(TopicPartition("t", number), 7, 7 + size) for number, size in enumerate(sizes)]
)


def covered(parts: list[Range]) -> list[tuple[TopicPartition, int, int]]:
    """Neighbours joined."""
    found: list[tuple[TopicPartition, int, int]] = []
    for part in sorted(parts):
        assert part.size > 0
        if found and found[-1][0] == part.partition:
            assert found[-1][2] == part.start, "a gap, or something twice"
            found[-1] = (part.partition, found[-1][1], part.end)
        else:
            found.append((part.partition, part.start, part.end))
    return found


def test_ranges_hold_something():
    assert ranges_between({A: 3, B: 5, C: 9}, {A: 7, B: 5, C: 4}) == [Range(A, 3, 7)]
    assert ranges_between({}, {A: 7}) == []


def test_a_limit_is_shared_by_what_waits():
    assert limit_ends({A: 0, B: 100}, {A: 300, B: 200}, 40) == {A: 30, B: 110}


def test_nobody_is_starved_and_who_has_nothing_stays():
    assert limit_ends({A: 0, B: 0, C: 5}, {A: 1_000_000, B: 1, C: 5}, 10) == {A: 9, B: 1, C: 5}


def test_a_limit_above_what_waits_changes_nothing():
    assert limit_ends({A: 0, B: 0}, {A: 10, B: 10}, 20) == {A: 10, B: 10}


@settings(deadline=None, max_examples=50)
@given(RANGES, st.integers(1, 1_000))
def test_every_limited_batch_moves_on(ranges, limit):
    starts, ends = (
        {each.partition: each.start for each in ranges},
        {each.partition: each.end for each in ranges},
    )
    reached = limit_ends(starts, ends, limit)
    assert all(starts[at] < reached[at] <= ends[at] for at in starts)
    assert count_offsets(starts, reached) <= limit + len(ranges)


@pytest.mark.parametrize(
    ("count", "waited_s", "is_early"), [(5, 1.0, True), (10, 1.0, False), (5, 60.0, False), (0, 1.0, True)]
)
def test_a_small_batch_waits_for_more_but_not_for_ever(count, waited_s, is_early):
    assert is_too_small(count, 10, waited_s, delay_max_s=60.0) is is_early


def test_without_a_minimum_nothing_waits():
    assert not is_too_small(1, None, 0.0, delay_max_s=60.0)


def test_cuts_outside_are_of_no_matter():
    assert split_at(Range(A, 10, 20), [5, 10, 12, 12, 20, 99]) == [Range(A, 10, 12), Range(A, 12, 20)]


@settings(deadline=None, max_examples=50)
@given(RANGES, st.integers(1, 50))
def test_even_parts_differ_by_one(ranges, count):
    for each in ranges:
        parts = split_evenly(each, count)
        sizes = {part.size for part in parts}
        assert len(parts) == min(count, each.size)
        assert max(sizes) - min(sizes) <= 1
        assert covered(parts) == [each]


@settings(deadline=None, max_examples=50)
@given(RANGES, st.integers(1, 300))
def test_no_part_has_more_records_than_allowed(ranges, records_max):
    parts = split_by_records(ranges, records_max)
    assert max(part.size for part in parts) <= records_max
    assert covered(parts) == list(ranges)
    assert split_by_records(ranges, None) == ranges


@settings(deadline=None, max_examples=50)
@given(RANGES, st.integers(1, 40))
def test_a_number_of_parts_is_about_reached(ranges, count):
    parts = split_to_count(ranges, count)
    assert covered(parts) == list(ranges)
    wanted = min(count, sum(each.size for each in ranges))
    assert len(parts) >= max(len(ranges), wanted - len(ranges))


def test_large_ranges_are_cut_and_small_ones_stay_whole():
    parts = split_to_count([Range(A, 0, 900), Range(B, 0, 10)], 4)
    assert [part for part in parts if part.partition == B] == [Range(B, 0, 10)]
    assert [part.size for part in parts if part.partition == A] == [300, 300, 300]
