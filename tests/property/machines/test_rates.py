"""The rate against a list of all events that is read again for each question."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.time import Instant
from headrace.machines.security.rates import Rate, TokenBucket, Windows

# Times are multiples of 1/64 s: floats can hold them, and both sides compute the same.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 3, 16, 32, 63, 64, 65, 128, 200, 704, 705, 1000]), st.integers(-50, 4000)
    ),
    min_size=1,
    max_size=60,
)


def obvious_rate(events: list[tuple[float, int]], windows: Windows) -> tuple[int, float]:
    """The sum of the windows that count, and the seconds that it is divided by."""
    grouped: list[list[tuple[float, int]]] = []
    for now, amount in events:
        if not grouped or now - grouped[-1][0][0] >= windows.size_s:
            grouped.append([])
        grouped[-1].append((now, amount))
    now = events[-1][0]
    counted = [group for group in grouped if now - group[-1][0] < windows.samples * windows.size_s]
    elapsed = now - counted[0][0][0]
    missing = windows.samples - 1 - math.floor(elapsed / windows.size_s)
    return sum(amount for group in counted for _, amount in group), elapsed + max(0, missing) * windows.size_s


@settings(max_examples=400, deadline=None)
@given(
    steps=STEPS,
    windows=st.builds(Windows, st.sampled_from([2, 3, 11]), st.sampled_from([0.5, 1.0, 2.0])),
    bound=st.sampled_from([1, 64, 128, 1024]),
)
def test_the_rate_is_that_of_all_events(steps: list[tuple[int, int]], windows: Windows, bound: int) -> None:
    rate = Rate(bound, windows)
    events: list[tuple[float, int]] = []
    ticks = 0
    for step, amount in steps:
        ticks += step
        now = ticks / 64
        events.append((now, amount))
        throttle_ms = rate.record(amount, Instant(now))
        total, elapsed = obvious_rate(events, windows)
        assert math.isclose(rate.measure(Instant(now)), total / elapsed, abs_tol=1e-9)
        expected = (total / elapsed - bound) / bound * elapsed * 1000
        assert abs(throttle_ms - max(0, expected)) <= 0.501
        assert len(rate._older) <= windows.samples + 1


@settings(max_examples=200, deadline=None)
@given(
    steps=STEPS,
    windows=st.builds(Windows, st.sampled_from([1, 2, 11]), st.sampled_from([0.5, 1.0])),
    bound=st.sampled_from([1, 64, 1024]),
    is_strict=st.booleans(),
)
def test_a_bucket_never_gives_more_than_it_gained(
    steps: list[tuple[int, int]], windows: Windows, bound: int, is_strict: bool
) -> None:
    """What is accepted without throttle is at most what was full, what came back, and one request."""
    bucket = TokenBucket(bound, windows)
    ticks = spent = 0
    largest = max(abs(amount) for _, amount in steps)
    for step, amount in steps:
        ticks += step
        if bucket.spend(abs(amount), Instant(ticks / 64), is_strict=is_strict) == 0:
            spent += abs(amount)
    full = bound * windows.samples * windows.size_s
    assert spent <= full + bound * ticks / 64 + largest + 1e-6
