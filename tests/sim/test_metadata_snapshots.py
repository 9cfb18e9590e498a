"""Runs of a cluster that makes snapshots of its metadata all the time: whoever was away gets one."""

from __future__ import annotations

import pytest

from headrace.node.metadata_store import MetadataStore
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_fault_profiles import USUAL
from headrace.simulator.cluster_judges import cluster_judges
from headrace.simulator.history import History
from headrace.simulator.judges import judges_of_clients
from headrace.simulator.plays.clean_end import stop_and_start
from headrace.simulator.plays.cluster import ClusterOfLogs
from headrace.simulator.world import World

SEEDS = (61, 62, 63, 65, 66, 67)
SECONDS = 12.0
FREQUENT = {"metadata.log.max.record.bytes.between.snapshots": "800"}


def test_what_is_acknowledged_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = 0
    install = MetadataStore.install_snapshot

    def counting(self: MetadataStore, *given: object) -> None:
        nonlocal installed
        installed += 1
        install(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(MetadataStore, "install_snapshot", counting)
    for seed in SEEDS:
        world = World(seed)
        play = ClusterOfLogs(world)
        history = History(world, judges_of_clients())
        cluster = Cluster(world, history, play.nodes, play.settings | FREQUENT, cluster_judges())
        play.live(cluster, USUAL, SECONDS)  # raises when a judge objects
        stop_and_start(cluster)
    assert installed > len(SEEDS) // 2, "leaders have sent snapshots"
