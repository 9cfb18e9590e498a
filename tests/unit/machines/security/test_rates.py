"""Rates over windows and token buckets: Kafka's formulas, with numbers that can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.base.time import Instant
from headrace.machines.security.rates import THROTTLE_MS_MAX, Rate, TokenBucket, Windows

WINDOWS = Windows(11, 1.0)
START = 5_000.0


def at(seconds: float) -> Instant:
    return Instant(START + seconds)


class TestRate:
    def test_what_was_saved_up_may_be_used_at_once(self) -> None:
        """Ten whole windows are counted as if they were there, empty."""
        rate = Rate(1000, WINDOWS)
        assert rate.record(10_000, at(0)) == 0
        assert rate.measure(at(0)) == 1000

    def test_the_throttle_brings_the_rate_back_to_the_bound(self) -> None:
        """(O - T) / T * W: 15,000 in ten seconds are 500 too many per second, for five seconds."""
        rate = Rate(1000, WINDOWS)
        assert rate.record(15_000, at(0)) == 5_000

    def test_a_steady_client_below_its_bound_is_not_throttled(self) -> None:
        """At the bound it would be: the events at both ends of the time count."""
        rate = Rate(1000, WINDOWS)
        assert [rate.record(99, at(tick / 10)) for tick in range(1000)] == [0] * 1000

    def test_a_steady_client_above_its_bound_is_throttled_after_some_time(self) -> None:
        rate = Rate(1000, WINDOWS)
        throttles = [rate.record(200, at(tick / 10)) for tick in range(200)]
        assert throttles[:50] == [0] * 50
        assert throttles[50] == 200  # 10,200 in ten seconds: 20 too many per second, ten seconds long
        assert min(throttles[50:]) > 0

    def test_a_client_that_keeps_the_throttle_time_keeps_the_bound(self) -> None:
        rate = Rate(1000, WINDOWS)
        now, sent = 0.0, 0
        while now < 60:
            sent += 3000
            now += rate.record(3000, at(now)) / 1000
            now += 0.001
        assert sent / now == pytest.approx(1000, rel=0.2)

    def test_windows_go_when_their_last_event_is_too_old(self) -> None:
        rate = Rate(1000, WINDOWS)
        rate.record(9_000, at(0))
        rate.record(500, at(0.9))
        assert rate.record(0, at(11.5)) == 0
        assert rate.measure(at(11.5)) == pytest.approx(9_500 / 11.5)  # its last event is 10.6 s old
        rate.record(0, at(11.9))
        assert rate.measure(at(11.9)) == 0
        assert not rate.is_idle(at(22.8))
        assert rate.is_idle(at(22.9))

    def test_a_bound_can_change(self) -> None:
        rate = Rate(1000, WINDOWS)
        assert rate.record(10_000, at(0)) == 0
        rate.set_bound(500)
        assert rate.record(0, at(0)) == 10_000
        rate.set_bound(2000)
        assert rate.record(0, at(0)) == 0

    def test_what_was_recorded_can_be_taken_back(self) -> None:
        """A throttled fetch sends nothing."""
        rate = Rate(1000, WINDOWS)
        assert rate.record(20_000, at(0)) == 10_000
        rate.add(-20_000, at(0.1))
        assert rate.record(10_000, at(0.2)) == 0

    def test_what_is_only_counted_is_paid_later(self) -> None:
        rate = Rate(1000, WINDOWS)
        rate.add(15_000, at(0))
        assert rate.record(0, at(0)) == 5_000

    def test_a_longest_throttle(self) -> None:
        assert Rate(1000, WINDOWS, throttle_ms_max=1000).record(50_000, at(0)) == 1000
        assert Rate(0.001, WINDOWS).record(1e12, at(0)) == THROTTLE_MS_MAX

    @pytest.mark.parametrize("bound", [0, -1])
    def test_a_bound_of_nothing(self, bound: float) -> None:
        assert Rate(bound, WINDOWS).record(1, at(0)) == 11_000

    def test_one_window(self) -> None:
        """Without whole windows before, the rate of the first moment is not known."""
        rate = Rate(1000, Windows(1, 1.0))
        assert rate.record(5_000, at(0)) == 0
        assert rate.record(0, at(0.5)) == 4_500


AROUND = 100  # bytes of an answer besides its records


def part_of_quota(
    bound: int, wanted: float, batch: int, late_s: float, limit: Callable[[Rate, Instant], float]
) -> tuple[float, float]:
    """A consumer that could read all the time: the part of its quota that it gets in 50 turns, after the
    first, and how often it asks in a second. A fetch returns whole batches, and at least one.
    """
    rate = Rate(bound, WINDOWS)
    now, got, asked = 0.0, 0, 0
    first, end = 11.0, 11.0 * 51
    while now < end:
        batches = max(1, int(min(wanted, limit(rate, at(now))) // batch))
        size = batches * batch + AROUND
        throttle_ms = rate.record(size, at(now))
        asked += 1
        if throttle_ms:
            rate.add(-size, at(now))
            now += throttle_ms / 1000 + late_s
        else:
            got += size if now >= first else 0
            now += 0.002
    return got / (end - first) / bound, asked / end


class TestPortion:
    def test_half_of_what_is_left_and_not_too_little(self) -> None:
        rate = Rate(1000, WINDOWS)
        assert rate.portion(at(0)) == 5000
        assert rate.record(9_000, at(0)) == 0
        assert rate.portion(at(0)) == 500
        assert rate.record(900, at(0)) == 0
        assert rate.portion(at(0)) == 250
        assert rate.portion(at(0.9)) == pytest.approx(500), "what is left by then, of 10.9 seconds"
        assert rate.record(5_000, at(0.9)) > 0
        assert rate.portion(at(0.9)) == 250
        assert rate.portion(at(11.9)) == 5000, "all windows are over"

    @pytest.mark.parametrize("bound", [0, -1])
    def test_of_nothing(self, bound: float) -> None:
        assert Rate(bound, WINDOWS).portion(at(0)) <= 0

    def test_with_one_window_nothing_can_be_saved_up(self) -> None:
        assert Rate(1000, Windows(1, 1.0)).portion(at(0)) == 0

    @pytest.mark.parametrize("seed", range(20))
    def test_a_portion_fits(self, seed: int) -> None:
        """Except for the smallest: then the throttle time says when it does."""
        rng = Random(seed)
        size_s = rng.choice((0.5, 1.0))
        rate = Rate(1000, Windows(rng.choice((2, 3, 11)), size_s))
        now, served, refused = 0.0, 0, 0
        for _ in range(500):
            size = rate.portion(at(now))
            throttle_ms = rate.record(size, at(now))
            if throttle_ms:
                assert size == 250 * size_s
                rate.add(-size, at(now))
                refused += 1
            else:
                served += 1
            now += rng.choice((0.0, 0.001, 0.05, 0.4, 3.0, throttle_ms / 1000))
        assert served > 100
        assert refused > 20

    @pytest.mark.parametrize("wanted_s", [0.2, 1, 3, 10, 50])
    @pytest.mark.parametrize("batch_s", [0.0001, 0.016, 0.2])
    @pytest.mark.parametrize("bound", [1_000_000, 10_000])
    @pytest.mark.parametrize("late_s", [0.0005, 0.01])
    def test_a_consumer_gets_its_quota(
        self, bound: int, wanted_s: float, batch_s: float, late_s: float
    ) -> None:
        """Whatever it wants at once, and if what is around the records is more than a batch."""
        batch = max(1, round(batch_s * bound))
        part, asked = part_of_quota(
            bound, wanted_s * bound, batch, late_s, lambda rate, now: rate.portion(now)
        )
        assert 0.96 < part < 1.02
        assert asked <= 15, "in a second"

    def test_batches_are_not_divided(self) -> None:
        """Those of a second of the quota: what is left of a turn is too little for the next."""
        part, _ = part_of_quota(1_000_000, 1e6, 990_000, 0.001, lambda rate, now: rate.portion(now))
        assert 0.9 < part < 0.95

    @pytest.mark.parametrize(
        ("wanted_s", "lowest", "highest"), [(0.2, 0.97, 1.0), (1, 0.9, 0.95), (10, 0.5, 0.6)]
    )
    def test_what_kafka_gives(self, wanted_s: float, lowest: float, highest: float) -> None:
        """It lets a fetch ask for all that the windows allow, and refuses what does not fit."""
        part, _ = part_of_quota(1_000_000, wanted_s * 1e6, 16_000, 0.001, lambda rate, now: rate.free)
        assert lowest <= part < highest


class TestTokenBucket:
    def test_the_example_of_the_kip(self) -> None:
        """KIP-599: 5 per second, a hundred windows of a second; 560 are 60 too many, or 12 seconds."""
        bucket = TokenBucket(5, Windows(100, 1.0))
        assert bucket.spend(560, at(0), is_strict=False) == 12_000
        assert bucket.spend(0, at(12), is_strict=False) == 0

    def test_strict_accepts_one_large_request_and_then_none(self) -> None:
        bucket = TokenBucket(5, Windows(100, 1.0))
        assert bucket.spend(560, at(0), is_strict=True) == 0
        assert bucket.spend(1, at(0), is_strict=True) == 12_000
        assert bucket.spend(1, at(11), is_strict=True) == 1_000  # what was refused did not count
        assert bucket.spend(1, at(12), is_strict=True) == 0
        assert bucket.spend(1, at(12), is_strict=True) == 200

    def test_a_refusal_is_never_for_no_time(self) -> None:
        bucket = TokenBucket(1_000_000, Windows(1, 1.0))
        bucket.spend(1_000_001, at(0), is_strict=True)
        assert bucket.spend(1, at(0), is_strict=True) == 1

    def test_it_is_never_more_than_full(self) -> None:
        bucket = TokenBucket(5, Windows(2, 1.0))
        bucket.spend(10, at(0), is_strict=True)
        assert not bucket.is_idle(at(1.9))
        assert bucket.is_idle(at(2))
        assert bucket.spend(11, at(1000), is_strict=False) == 200

    def test_a_bound_can_change(self) -> None:
        bucket = TokenBucket(5, Windows(2, 1.0))
        bucket.spend(20, at(0), is_strict=False)
        bucket.set_bound(10)
        assert bucket.spend(0, at(0), is_strict=False) == 1_000

    def test_a_bound_of_nothing(self) -> None:
        assert TokenBucket(0, Windows(2, 1.0)).spend(1, at(0), is_strict=False) == 2_000


def test_throttle_times_as_kafka_gives_them() -> None:
    """A millisecond more or less is a float that was rounded."""
    rate, bucket = Rate(1, WINDOWS), TokenBucket(1, WINDOWS)
    asked = 0
    for line in Path(__file__).with_name("rates_of_kafka.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        question, _, answer = line.partition(": ")
        word, *numbers = question.split()
        first, second, *more = map(int, numbers)
        if word == "windows":
            windows = Windows(first, second / 1000)
            rate, bucket = Rate(more[0], windows), TokenBucket(more[0], windows)
            continue
        now = Instant(first / 1000)
        throttle_ms = (
            rate.record(second, now) if word == "rate" else bucket.spend(second, now, is_strict=more == [1])
        )
        assert abs(throttle_ms - int(answer)) <= 1, line
        asked += 1
    assert asked > 300
