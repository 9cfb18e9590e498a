"""Runs of a cluster whose controllers and brokers are processes of their own: all of them die, stop and are
cut off, then all heals.
"""

from __future__ import annotations

import pytest

from harness.separate_roles import CONTROLLERS, SeparateRoles
from headrace.simulator.cluster_fault_profiles import USUAL
from headrace.simulator.cluster_judges import cluster_judges
from headrace.simulator.history import History
from headrace.simulator.judges import judges_of_clients
from headrace.simulator.plays.clean_end import stop_and_start
from headrace.simulator.plays.cluster import ClusterOfLogs
from headrace.simulator.world import World

SEEDS = range(1, 7)
BROKERS = 3
SECONDS = 10.0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_acknowledged_stays(seed: int) -> None:
    world = World(seed)
    history = History(world, judges_of_clients())
    play = ClusterOfLogs(world)
    play.nodes = BROKERS
    cluster = SeparateRoles(world, history, len(CONTROLLERS) + BROKERS, {}, cluster_judges())
    play.live(cluster, USUAL, SECONDS)  # raises when a judge objects
    stop_and_start(cluster)
    assert history.faults >= 5, "these runs are to see trouble"
