"""When records are deleted that a table lacks."""

from __future__ import annotations

import pytest

from headrace.machines.lake.forecast import time_left_ms, time_left_text

HOUR_MS = 3_600_000


def left(
    first_ms: int | None,
    retention_ms: int = 10 * HOUR_MS,
    policy: str = "delete",
    waits_max_ms: int | None = None,
) -> int | None:
    return time_left_ms(
        first_ms,
        retention_ms=retention_ms,
        cleanup_policy=policy,
        now_ms=100 * HOUR_MS,
        waits_max_ms=waits_max_ms,
    )


def test_a_record_is_safe_until_it_is_as_old_as_the_retention() -> None:
    assert left(97 * HOUR_MS) == 7 * HOUR_MS
    assert left(90 * HOUR_MS) == 0
    assert left(1) == 0  # already overdue
    assert left(97 * HOUR_MS, policy="compact,delete") == 7 * HOUR_MS


def test_nothing_is_endangered_without_a_missing_record_or_without_a_limit() -> None:
    assert left(None) is None
    assert left(1, retention_ms=-1) is None
    assert left(1, policy="compact") is None


def test_retention_that_waits_for_the_table_gives_it_time_up_to_the_cap() -> None:
    assert left(97 * HOUR_MS, waits_max_ms=20 * HOUR_MS) == 17 * HOUR_MS
    assert left(97 * HOUR_MS, waits_max_ms=5 * HOUR_MS) == 7 * HOUR_MS  # the retention itself is longer
    assert left(1, waits_max_ms=-1) is None


@pytest.mark.parametrize(
    ("left_ms", "text"),
    [
        (0, "0 m"),
        (59_999, "0 m"),
        (3 * HOUR_MS + 12 * 60_000, "3 h 12 m"),
        (26 * HOUR_MS, "1 d 2 h"),
        (45 * 60_000, "45 m"),
    ],
)
def test_durations_are_short(left_ms: int, text: str) -> None:
    assert time_left_text(left_ms) == text
