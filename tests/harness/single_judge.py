"""One judge of the simulator on its own: whether it still sees what another one objects to first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.simulator import run
from headrace.simulator.history import Judge


def ask_only(monkeypatch: pytest.MonkeyPatch, judge: Callable[[], Judge]) -> None:
    monkeypatch.setattr(run, "all_judges", lambda: [judge()])
