"""Cron expressions: what they accept, and when they are due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.machines.jobs.cron import NotACron, parse_cron


def due(expression: str, after: str) -> str:
    ms = round(datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp() * 1000)
    return datetime.fromtimestamp(parse_cron(expression).next_ms(ms) / 1000, UTC).strftime("%F %H:%M")


@pytest.mark.parametrize(
    ("expression", "after", "next_time"),
    [
        ("* * * * *", "2026-01-31 23:59:59.999", "2026-02-01 00:00"),
        ("* * * * *", "2026-01-31 12:00", "2026-01-31 12:01"),  # a moment that matches is over
        ("0 3 * * *", "2026-01-31 03:00", "2026-02-01 03:00"),
        ("0 3 * * *", "2026-01-31 02:59", "2026-01-31 03:00"),
        ("*/15 8-18/2 * * *", "2026-01-31 08:46", "2026-01-31 10:00"),
        ("5/20 * * * *", "2026-01-31 08:46", "2026-01-31 09:05"),
        ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),  # 2100 has none
        ("30 4 * * mon-fri", "2026-01-30 05:00", "2026-02-02 04:30"),  # from Friday to Monday
        ("0 0 * * 7", "2026-01-31 00:00", "2026-02-01 00:00"),
        ("0 0 13 * fri", "2026-02-13 00:00", "2026-02-20 00:00"),  # either of the two
        ("0 0 31 2 mon", "2026-01-31 00:00", "2026-02-02 00:00"),
        ("0 12 1,15 jan,JUL *", "2026-01-16 00:00", "2026-07-01 12:00"),
        ("@monthly", "2026-01-31 00:00", "2026-02-01 00:00"),
        ("59 23 31 12 *", "2026-12-31 23:59", "2027-12-31 23:59"),
    ],
)
def test_next_time(expression: str, after: str, next_time: str) -> None:
    assert due(expression, after) == next_time


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "it has 0 fields"),
        ("* * * *", "it has 4 fields"),
        ("60 * * * *", "minute '60': must be 0 to 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day of the month '0'"),
        ("* * * 13 *", "month '13': must be 1 to 12, or jan"),
        ("* * * * 8", "day of the week '8'"),
        ("* * * * monday", "day of the week 'monday'"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "must be at least 1"),
        ("*-5 * * * *", "is not a range"),
        ("1,,2 * * * *", "'' is not"),
        ("x y * * *", "minute 'x'"),
        ("0 0 31 2,4 *", "no month of these has such a day"),
    ],
)
def test_what_is_not_cron(expression: str, says: str) -> None:
    with pytest.raises(NotACron, match=says.replace("*", r"\*")):
        parse_cron(expression)
