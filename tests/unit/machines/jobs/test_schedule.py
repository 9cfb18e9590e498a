"""Schedules, and the waits between failures."""

from __future__ import annotations

import random

import pytest

from headrace.machines.jobs.backoff import FIRST_MS, LAST_MS, backoff_ms
from headrace.machines.jobs.cron import parse_cron
from headrace.machines.jobs.schedule import (
    Continuous,
    Every,
    Once,
    OnDemand,
    Schedule,
    first_ms,
    next_ms,
    parse_schedule,
)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("continuous", Continuous()),
        (" Once ", Once()),
        ("on demand", OnDemand()),
        ("every 5m", Every(300_000, "every 5m")),
        ("every 90 s", Every(90_000, "every 90s")),
        ("cron 0 3 * * *", parse_cron("0 3 * * *")),
        ("cron @daily", parse_cron("@daily")),
    ],
)
def test_texts(text: str, schedule: Schedule) -> None:
    assert parse_schedule(text) == schedule
    assert parse_schedule(str(schedule)) == schedule


@pytest.mark.parametrize("text", ["", "sometimes", "every", "every 0s", "every -1m", "once more"])
def test_what_is_not_a_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"every|write"):
        parse_schedule(text)


def test_first_and_next_moments() -> None:
    hour = 3_600_000
    for schedule in (Continuous(), Once(), Every(5, "")):
        assert first_ms(schedule, 77) == 77
    assert first_ms(OnDemand(), 77) is None
    assert first_ms(parse_cron("@hourly"), 77) == hour
    assert next_ms(Every(300, ""), 1000, 1100) == 1300
    assert next_ms(Every(300, ""), 1000, 9000) == 9000  # late, and not once for each that was missed
    assert next_ms(parse_cron("@hourly"), 77, 5 * hour) == 6 * hour
    assert next_ms(Once(), 77, 99) is None


class Fixed(random.Random):
    """The largest or the smallest of all random numbers."""

    def __init__(self, *, is_high: bool) -> None:
        super().__init__(0)
        self.is_high = is_high

    def randrange(self, stop: int) -> int:  # type: ignore[override]
        return stop - 1 if self.is_high else 0


def test_waits_double_from_a_second_to_five_minutes() -> None:
    longest = [backoff_ms(failures, Fixed(is_high=True)) for failures in range(1, 12)]
    shortest = [backoff_ms(failures, Fixed(is_high=False)) for failures in range(1, 12)]
    assert longest[:4] == [1_000, 2_000, 4_000, 8_000]
    assert longest[-2:] == [LAST_MS, LAST_MS]
    assert shortest[:4] == [FIRST_MS, 1_000, 2_000, 4_000]
    assert shortest[-1] == LAST_MS // 2
    assert backoff_ms(10_000, Fixed(is_high=True)) == LAST_MS
