"""Durations and sizes in settings: what a person types, what a broker gets, what is printed back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.quantities import NotAQuantity, setting_text, setting_value
from headrace.cli.main import run

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("key", "typed", "sent"),
    [
        ("retention.ms", "7d", str(7 * DAY_MS)),
        ("retention.ms", "1w", str(7 * DAY_MS)),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "250 ms", "250"),
        ("retention.ms", "86400000", "86400000"),
        ("retention.ms", "-1", "-1"),
        ("segment.ms", "12H", "43200000"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "2h", "120"),
        ("connections.max.idle.ms", "10m", "600000"),
        ("segment.bytes", "1GiB", str(2**30)),
        ("segment.bytes", "1g", str(10**9)),
        ("max.message.bytes", "1.5 MB", "1500000"),
        ("max.message.bytes", "2000000", "2000000"),
        ("retention.bytes", "-1", "-1"),
        ("log.cleaner.io.max.bytes.per.second", "10MiB", str(10 * 2**20)),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", None),
        ("cleanup.policy", "compact", "compact"),
        ("min.cleanable.dirty.ratio", "0.5", "0.5"),
        ("message.timestamp.type", "7d", "7d"),
        ("retention.ms", "soon", None),
        ("retention.ms", "7x", None),
        ("retention.ms", "", None),
        ("retention.ms", "0.5ms", None),
        ("segment.bytes", "1Zib", None),
        ("log.retention.hours", "90m", None),
    ],
)
def test_what_is_typed_is_sent_in_the_keys_unit(key: str, typed: str, sent: str | None) -> None:
    if sent is not None:
        assert setting_value(key, typed) == sent
        return
    with pytest.raises(NotAQuantity, match=f"^{key}="):
        setting_value(key, typed)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "5400000", "90m"),
        ("retention.ms", "1234", "1234ms"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "0", "0"),
        ("flush.ms", "9223372036854775807", "9223372036854775807"),
        ("log.retention.hours", "168", "7d"),
        ("segment.bytes", "1073741824", "1GiB"),
        ("max.message.bytes", "1048588", "1048588"),
        ("cleanup.policy", "delete", "delete"),
        ("num.partitions", "3600000", "3600000"),
    ],
)
def test_what_is_printed_for_people(key: str, value: str, shown: str) -> None:
    assert setting_text(key, value) == shown


@given(st.sampled_from(["retention.ms", "log.retention.hours", "segment.bytes"]), st.integers(-1, 2**63 - 1))
def test_what_is_printed_can_be_typed_back(key: str, value: int) -> None:
    assert setting_value(key, setting_text(key, str(value))) == str(value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "t", "-c", "retention.ms=soon"],
        ["topic", "alter", "t", "-c", "segment.bytes=big"],
        ["config", "set", "topic", "t", "retention.ms=7x"],
        ["topic", "list", "-X", "request.timeout.ms=soon"],
        ["topic", "list", "--timeout", "never"],
        ["topic", "list", "--timeout", "10ms"],
        ["topic", "list", "--timeout", "nan"],
    ],
    ids=" ".join,
)
def test_what_is_not_understood_is_wrong_use(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "Error: " in capsys.readouterr().err
