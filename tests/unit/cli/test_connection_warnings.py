"""Warnings that no broker can be reached: people see them at once, scripts if a command goes on for long."""

from __future__ import annotations

import json
import logging

import pytest

from headrace.cli.client_warnings import shown_warnings

log = logging.getLogger("headrace.connections")


@pytest.mark.parametrize(
    ("as_json", "lasted_s", "is_shown"),
    [(False, 1.0, True), (False, 31.0, True), (True, 1.0, False), (True, 31.0, True)],
)
def test_who_sees_them(
    as_json: bool, lasted_s: float, is_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_warnings(as_json=as_json):
        log.warning("%s (for %.0f s). %s", "cannot connect", lasted_s, "Check.")
    shown = capsys.readouterr().err
    text = f"cannot connect (for {lasted_s:.0f} s). Check."
    expected = json.dumps({"warning": text}) if as_json else f"Warning: {text}"
    assert shown == (f"{expected}\n" if is_shown else "")
