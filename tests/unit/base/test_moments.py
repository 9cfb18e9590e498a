"""`--from` and `--to` as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.moments import AtOffset, AtTime, BeforeEnd, Edge, Moment, iso_time, parse_moment

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Edge.EARLIEST),
        ("beginning", Edge.EARLIEST),
        ("latest", Edge.LATEST),
        ("end", Edge.LATEST),
        ("0", AtOffset(0)),
        ("1234", AtOffset(1234)),
        ("-100", BeforeEnd(100)),
        ("-90s", AtTime(NOW_MS - 90_000)),
        ("-15m", AtTime(NOW_MS - 900_000)),
        ("-1.5h", AtTime(NOW_MS - 5_400_000)),
        ("-7d", AtTime(NOW_MS - 604_800_000)),
        ("-2w", AtTime(NOW_MS - 1_209_600_000)),
        ("-250ms", AtTime(NOW_MS - 250)),
        ("-9999w", AtTime(0)),
        ("@1767225600000", AtTime(NOW_MS)),
        ("2026-01-01", AtTime(NOW_MS)),
        ("2026-01-01T00:00:00Z", AtTime(NOW_MS)),
        ("2026-01-01T00:00:00", AtTime(NOW_MS)),
        ("2026-01-01T01:00:00+01:00", AtTime(NOW_MS)),
        ("2026-01-01T00:00:00.250Z", AtTime(NOW_MS + 250)),
        ("  latest ", Edge.LATEST),
    ],
)
def test_understood(text: str, expected: Moment) -> None:
    assert parse_moment(text, wall_ms=NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "soon", "1h", "-1x", "--5", "@", "1.5", "2026-13-01", "²"])
def test_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="try earliest"):
        parse_moment(text, wall_ms=NOW_MS)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_a_moment_or_a_value_error(text: str) -> None:
    try:
        moment = parse_moment(text, wall_ms=NOW_MS)
    except ValueError:
        return
    assert isinstance(moment, Edge | AtOffset | BeforeEnd | AtTime)


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (NOW_MS, "2026-01-01T00:00:00.000Z"),
        (-1, ""),
        (2**63 - 1, f"@{2**63 - 1}"),
        (0, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_timestamps_for_people(timestamp: int, text: str) -> None:
    assert iso_time(timestamp) == text
