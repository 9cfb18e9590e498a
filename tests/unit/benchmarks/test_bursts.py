"""The rate of a client that gets its bytes in bursts, whenever it is looked at."""

from __future__ import annotations

import pytest
from benchmarks.bursts import mean_rate

BEGINS_S = [0.0, 0.1, 3.0, 6.0, 9.0, 11.0]


@pytest.mark.parametrize("begin_s", BEGINS_S)
@pytest.mark.parametrize("turn_s", [11.0, 11.5, 12.0])
@pytest.mark.parametrize("rate", [1_000_000, 800_000])
def test_it_does_not_depend_on_when_the_bursts_are(rate: int, turn_s: float, begin_s: float) -> None:
    bursts = [(100 + begin_s + turn * turn_s, round(rate * turn_s)) for turn in range(-1, 6)]
    assert mean_rate(bursts, 100, 33, 12) == pytest.approx(rate, rel=0.03)


def test_of_steady_bytes() -> None:
    steady = [(100 + tick / 100, 10_000) for tick in range(100 * 50)]
    assert mean_rate(steady, 100, 33, 12) == pytest.approx(1_000_000, rel=0.001)


def test_of_nothing() -> None:
    assert mean_rate([], 100, 33, 12) == 0
