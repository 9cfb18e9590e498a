"""Runs of a cluster that loses files of its logs and checkpoints while a node is down."""

from __future__ import annotations

import pytest

from headrace.simulator.cluster_fault_profiles import PROFILES
from headrace.simulator.report import failure_text
from headrace.simulator.run import Options, simulate


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_others_have_is_not_lost(seed: int) -> None:
    outcome = simulate(seed, Options(play="cluster", cluster_profile=PROFILES["files"], seconds=12.0))
    assert outcome.failure is None, failure_text(outcome)
