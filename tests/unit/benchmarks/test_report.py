"""Verdicts of measured figures."""

from __future__ import annotations

import pytest
from benchmarks.report import Measure, table


@pytest.mark.parametrize(
    ("ours", "idle", "verdict"),
    [(4.0, 1.0, "ok"), (30.0, 25.0, "ok"), (30.0, 10.0, "missed"), (4.0, 25.0, "ok")],
)
def test_one_of_two_targets_is_enough(ours: float, idle: float, verdict: str) -> None:
    """On a machine that is busy itself, nobody is called back in time."""
    measure = Measure(
        "lag", "lag", "ms", False, ratio_target=1.2, limit=10.0, rival="an idle loop", either=True
    )
    measure.repeats = {"headrace": [ours], "an idle loop": [idle]}
    assert measure.verdict == verdict
    assert measure.target == "≤ 1.2× or ≤ 10 ms"
    assert f"{idle:.3g} an idle loop" in table([measure])


def test_both_targets_are_needed_otherwise() -> None:
    measure = Measure("T4", "p50", "ms", False, ratio_target=0.75, limit=10.0)
    measure.repeats = {"headrace": [5.0], "kafka": [5.0]}
    assert measure.verdict == "missed"
