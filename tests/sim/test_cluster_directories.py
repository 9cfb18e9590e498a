"""Runs of a cluster whose nodes have three log directories each, of which two may fail: the node goes on with
the others, and what was in a directory that failed is led elsewhere.
"""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.simulator.cluster import ADDRESS, CLIENT_PORTS_FROM, CONTROLLER_PORTS_FROM, Cluster
from headrace.simulator.cluster_disk_faults import OPERATIONS, ClusterDiskFaults
from headrace.simulator.cluster_fault_profiles import USUAL
from headrace.simulator.cluster_judges import cluster_judges
from headrace.simulator.history import History
from headrace.simulator.host import Host
from headrace.simulator.judges import judges_of_clients
from headrace.simulator.plays.clean_end import stop_and_start
from headrace.simulator.plays.cluster import ClusterOfLogs
from headrace.simulator.world import World
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault

SEEDS = range(1, 9)
SECONDS = 12.0
DIRECTORIES = ["meta", "b", "c"]  # without the first, which has the metadata, a node halts
FAILING = replace(USUAL, failing_disk=20, torn_write=3, disk_full=4, isolate=2, divide=1, cut_link=3)


class SeveralDirectories(Cluster):
    def _host(self, number: int, texts: dict[str, str]) -> Host:
        client, controller = CLIENT_PORTS_FROM + number, CONTROLLER_PORTS_FROM + number
        settings = Settings.parse(
            texts
            | {
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{ADDRESS}:{client},CONTROLLER://{ADDRESS}:{controller}",
                "log.dirs": ",".join(DIRECTORIES),
            }
        )

        def start(disks: dict[str, Disk], rng: Randomness, boot_id: str, now: Now) -> Node:
            return Node(settings, disks, rng, boot_id, now)

        host = Host(self.world, self.history, DIRECTORIES, start, id=number, network=self.network)
        host.is_alone = False
        host.seen = self._seen
        self.network.listen((ADDRESS, client), host, "PLAINTEXT")
        self.network.listen((ADDRESS, controller), host, "CONTROLLER")
        return host


def fail_one(self: ClusterDiskFaults) -> str:
    """In the place of a fault that strikes all disks of a host."""
    host, rng = self._any(), self._world.rng
    if host.node is None or not self._may_lose():
        return "no disk fails"
    operation, name = rng.choice(OPERATIONS), rng.choice(DIRECTORIES[1:])
    host.disks[name].faults.append(
        Fault(Fail(errno.EIO), operation, skip=rng.randrange(5), times=rng.choice((1, -1)))
    )
    host.has_broken_disk = True
    return f"an I/O error of {host.id} on {operation} in {name}"


def test_what_is_acknowledged_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterDiskFaults, "fail", fail_one)
    offline = 0
    for seed in SEEDS:
        world = World(seed)
        play = ClusterOfLogs(world)
        history = History(world, judges_of_clients())
        cluster = SeveralDirectories(world, history, play.nodes, play.settings, cluster_judges())
        play.live(cluster, FAILING, SECONDS)  # raises when a judge objects
        stop_and_start(cluster)
        offline += sum(host.reports.count("error log_directory_offline") for host in cluster.hosts.values())
    assert offline > len(SEEDS) // 2, "directories have failed"
