"""A producer's speed limit: over any stretch of time no more than was allowed, and all of that."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.time import Instant
from headrace.client.producer.core import BURST_S, RECORDS_AT_ONCE_MAX, Rate, RateLimit


def test_the_first_records_go_at_once_and_the_rest_at_the_rate() -> None:
    pace = RateLimit(records_per_s=100, bytes_per_s=0)
    waits = [pace.reserve(Instant(50.0), 1, 10) for _ in range(30)]
    assert waits[:11] == pytest.approx([0.0] * 11)  # what 0.1 s allow
    assert waits[11:] == pytest.approx([0.01 * number for number in range(1, 20)])


def test_a_pause_is_made_up_for_only_in_part() -> None:
    pace = RateLimit(records_per_s=100, bytes_per_s=0)
    for _ in range(11):
        pace.reserve(Instant(0.0), 1, 0)
    late = [pace.reserve(Instant(1000.0), 1, 0) for _ in range(12)]
    assert late[:11] == pytest.approx([0.0] * 11)
    assert late[11] == pytest.approx(0.01)


def test_the_stricter_limit_counts() -> None:
    pace = RateLimit(records_per_s=1000, bytes_per_s=1000)
    assert pace.reserve(Instant(0.0), 1, 600) == 0.0
    assert pace.reserve(Instant(0.0), 1, 600) == pytest.approx(0.5)


def test_records_go_together_as_far_as_the_rate_allows() -> None:
    assert RateLimit(0, 0).records_at_once(100.0) == RECORDS_AT_ONCE_MAX
    assert RateLimit(1000, 0).records_at_once(100.0) == 100
    assert RateLimit(1000, 50_000).records_at_once(100.0) == 50
    assert RateLimit(5, 5).records_at_once(1e6) == 1
    assert RateLimit(0, 50_000).records_at_once(0.0) == RECORDS_AT_ONCE_MAX


def test_without_limits_nobody_waits() -> None:
    pace = RateLimit(0, 0)
    assert not pace.is_limited
    assert [pace.reserve(Instant(0.0), 10**6, 10**9) for _ in range(3)] == [0.0] * 3


@given(
    st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 40)), min_size=1, max_size=60),
    st.integers(10, 500),
)
@settings(max_examples=80, deadline=None)
def test_no_stretch_of_time_sees_more_than_the_rate(asked: list[tuple[float, int]], per_s: int) -> None:
    meted = Rate(per_s)
    now = 0.0
    began: list[tuple[float, int]] = []
    for pause_s, amount in asked:
        now += pause_s
        began.append((now + meted.reserve(Instant(now), amount), amount))
    assert [at for at, _ in began] == sorted(at for at, _ in began)
    for first in range(len(began)):
        for last in range(first, len(began)):
            stretch_s = began[last][0] - began[first][0]
            used = sum(amount for _, amount in began[first:last])
            assert used <= per_s * (stretch_s + BURST_S) + 1e-6
