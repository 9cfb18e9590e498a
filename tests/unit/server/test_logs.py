"""One line per event, which no client can forge, and floods are counted instead of written."""

from __future__ import annotations

import json
import re

import pytest

from headrace.server.logs import REPEATS_MAX, REPEATS_PERIOD_S, Log


def test_text_lines() -> None:
    lines: list[str] = []
    log = Log("info", write=lines.append)
    log.info("serving", address="127.0.0.1:9092", took=0.25, parts=3)
    log.debug("hidden")
    assert len(lines) == 1
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    serving address=127.0.0.1:9092 took=0.25 parts=3\n",
        lines[0],
    )


def test_values_cannot_forge_lines() -> None:
    lines: list[str] = []
    Log(write=lines.append).warning("odd", client="a b=c\n2026 error fake", empty="", escape="\x1b[2J")
    assert lines[0].count("\n") == 1
    assert r'client="a b=c\n2026 error fake"' in lines[0]
    assert 'empty=""' in lines[0]
    assert "\x1b" not in lines[0]


def test_json_lines() -> None:
    lines: list[str] = []
    Log("debug", format="json", write=lines.append).error("failed", error=OSError(5, "bad"), count=2)
    event = json.loads(lines[0])
    assert event["level"] == "error"
    assert event["event"] == "failed"
    assert event["count"] == 2
    assert "bad" in event["error"]


def test_levels() -> None:
    lines: list[str] = []
    log = Log("error", write=lines.append)
    log.warning("hidden")
    log.error("shown")
    assert len(lines) == 1
    assert log.is_on("error")
    assert not log.is_on("warning")


def test_floods_are_counted() -> None:
    lines: list[str] = []
    log = Log(write=lines.append)
    for number in range(100):
        log.sometimes(number / 1000, "info", "refused", number=number)
    assert len(lines) == REPEATS_MAX
    log.sometimes(REPEATS_PERIOD_S + 1, "info", "refused", number=100)
    assert f"held_back={100 - REPEATS_MAX}" in lines[REPEATS_MAX]
    assert "number=100" in lines[-1]
    assert len(lines) == REPEATS_MAX + 2


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_control_character_of_a_client_reaches_a_terminal(format: str) -> None:
    lines: list[str] = []
    log = Log(format=format, write=lines.append)
    log.warning("refused", name="a\x7f\x1b[31m\x9b\u202e\nb", client="x\x7f")
    (line,) = lines
    assert all(" " <= character <= "~" for character in line[:-1])
    assert "\\u007f" in line
