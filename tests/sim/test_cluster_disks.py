"""Disks of a cluster that are replaced or damaged while their node is down: the others have the records."""

from __future__ import annotations

import errno

import pytest

from headrace.simulator.clients.creator import Creator
from headrace.simulator.clients.topics import Topic
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_judges import cluster_judges
from headrace.simulator.history import History
from headrace.simulator.judges import judges_of_clients
from headrace.simulator.plays.cluster import in_sync
from headrace.simulator.programs.sender import Sender
from headrace.simulator.world import World
from headrace.storage.faulty_disk import Fail, Fault


class Scene:
    """Three nodes, and a topic that somebody writes to."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.cluster = Cluster(self.world, History(self.world, judges_of_clients()), 3, {}, cluster_judges())
        self.topic = Topic("notes", 2, {"retention.ms": "-1"})
        creator = Creator(self.cluster, "creator", [self.topic], 3)
        self.cluster.start()
        creator.begin()
        assert self.cluster.when(lambda: creator.has_created and self.is_in_sync, 60.0)
        self.sender = Sender(self.cluster, "writer", self.topic, acks=-1, is_idempotent=True)
        self.sender.begin()
        self.world.run(self.world.mono + 2.0)

    @property
    def is_in_sync(self) -> bool:
        return in_sync(self.cluster, [self.topic])

    def ends(self, node: int) -> list[int]:
        running = self.cluster.nodes()[node]
        return [one.log.log_end_offset for one in running.broker.partitions.all() if one.log is not None]


def test_a_node_that_lacks_descriptors_when_it_has_caught_up_halts_and_comes_back() -> None:
    """It opens its logs when it knows the cluster, long after its start."""
    scene = Scene(4)
    host = scene.cluster.hosts[3]
    host.restarts = False
    host.crash("killed")
    host.start()
    for disk in host.disks.values():
        disk.faults.append(Fault(Fail(errno.EMFILE), "list", times=-1))
    assert scene.cluster.when(lambda: host.node is None, 10.0)
    host.disks.clear()  # of that process
    host.restarts = True
    host.start()
    assert scene.cluster.when(lambda: scene.is_in_sync, 60.0)


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_node_that_comes_back_with_an_empty_disk_gets_all_records_again(victim: int) -> None:
    scene = Scene(victim)
    host = scene.cluster.hosts[victim]
    host.crash("lost")
    host.replace_disks({})
    assert not scene.is_in_sync
    assert scene.cluster.when(lambda: scene.is_in_sync, 60.0)
    scene.sender.is_stopping = True
    assert scene.cluster.when(lambda: scene.sender.is_idle, 60.0)
    scene.world.run(scene.world.mono + 2.0)
    assert sum(scene.ends(victim)) > 10
    assert scene.ends(1) == scene.ends(2) == scene.ends(3)
