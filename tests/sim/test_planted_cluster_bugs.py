"""Mistakes made on purpose in a cluster: a judge of the normal plays catches each of them.

The known seed is tried first. A change of the product may have moved it: then others are tried, and a new one
belongs into `harness/cluster_bugs.py` (`PYTHONPATH=tests python -m harness.planted_bugs` finds it).
"""

from __future__ import annotations

import pytest

from harness.cluster_bugs import BUGS
from harness.planted_bugs import caught_first

SEEDS = range(1, 101)


@pytest.mark.parametrize("name", list(BUGS))
def test_a_planted_bug_is_caught(name: str) -> None:
    assert BUGS[name].seed in SEEDS
    caught = caught_first(name, SEEDS)
    assert caught is not None, f"no judge has noticed in {len(SEEDS)} seeds"
    assert caught.judge in BUGS[name].judges, caught.sentence
