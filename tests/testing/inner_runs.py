"""Test runs inside a test, made quick."""

from __future__ import annotations

import pytest

from headrace.testing import Broker


def quickened(pytester: pytest.Pytester, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A run in this process forgets what it has loaded: what all of them need is loaded before, and what none
    needs (hypothesis, at the end of each) is left out.
    """
    broker.produce_all("orders", ["x"])
    broker.consume_all("orders", group="readers")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester
