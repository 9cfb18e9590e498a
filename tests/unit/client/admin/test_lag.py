"""Lag and resets as sums over offsets."""

from __future__ import annotations

import pytest

from headrace.client.admin.group_offsets import Move, PartitionLag, lag_of, planned, shifted, total_lag
from headrace.client.admin.groups import Group, Member
from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import CommittedOffset

ZERO, ONE, TWO = (TopicPartition("orders", index) for index in range(3))


def committed(**offsets: int) -> dict[TopicPartition, CommittedOffset]:
    return {TopicPartition("orders", int(key[1:])): CommittedOffset(value) for key, value in offsets.items()}


def group(*assignments: list[TopicPartition] | None) -> Group:
    members = [
        Member(f"member-{number}", None, f"client-{number}", "127.0.0.1", None, assignment, None)
        for number, assignment in enumerate(assignments)
    ]
    return Group("readers", "classic", "Stable", "consumer", "range", None, 1, members)


def test_every_partition_that_is_read_or_remembered() -> None:
    lags = lag_of(group([ONE], [TWO]), committed(p0=5, p1=3), {ZERO: 9, ONE: 3, TWO: 7})
    assert lags == [
        PartitionLag(ZERO, 5, 9, None, None),
        PartitionLag(ONE, 3, 3, "member-0", "client-0"),
        PartitionLag(TWO, None, 7, "member-1", "client-1"),
    ]
    assert [lag.lag for lag in lags] == [4, 0, None]
    assert total_lag(lags) == 4


def test_a_partition_that_is_gone_and_one_made_anew() -> None:
    lags = lag_of(group(None), committed(p0=5, p1=9), {ONE: 2})
    assert [lag.lag for lag in lags] == [None, 0]


@pytest.mark.parametrize(
    ("wanted", "after", "is_clamped"),
    [(7, 7, False), (3, 3, False), (10, 10, False), (2, 3, True), (11, 10, True)],
)
def test_a_reset_stays_inside_of_the_partition(wanted: int, after: int, is_clamped: bool) -> None:
    (move,) = planned({ZERO: wanted}, committed(p0=5), {ZERO: 3}, {ZERO: 10})
    assert (move.before, move.after, move.is_clamped, move.lag) == (5, after, is_clamped, 10 - after)


def test_a_reset_of_what_was_never_read() -> None:
    assert planned({ONE: 4}, {}, {ONE: 0}, {ONE: 9}) == [Move(ONE, None, 4, 0, 9)]


def test_a_shift_counts_from_where_the_group_is() -> None:
    assert shifted([ZERO, ONE], committed(p0=5, p1=8, p2=1), -6) == {ZERO: -1, ONE: 2}
