"""All nodes of a cluster are told to stop at about the same moment, whatever they are doing just then.

Jobs may be slow and a link may have failed: each node stops within the time that it waits for others.
"""

from __future__ import annotations

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

SEEDS = range(1, 31)
STOP_S_MAX = 20.0
READY_S_MAX = 60.0


def a_cluster_at_work(world: World) -> Cluster:
    """It starts, creates a topic, or is being written to."""
    rng = world.rng
    judges = cluster_judges()
    cluster = Cluster(world, History(world, judges_of_clients()), rng.choice((2, 3, 3, 3, 5)), {}, judges)
    topic = Topic("notes", 6, {"flush.messages": "1"} if world.chance(0.3) else {})
    creator = Creator(cluster, "creator", [topic], min(3, cluster.size))
    cluster.start()
    creator.begin()
    if world.chance(0.9):
        assert cluster.when(lambda: creator.has_created, READY_S_MAX)
        assert cluster.when(lambda: in_sync(cluster, [topic]), READY_S_MAX)
        Sender(cluster, "writer", topic, acks=-1, is_idempotent=True).begin()
    world.run(world.mono + world.between(0.0, 1.5))
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_every_node_stops(seed: int) -> None:
    world = World(seed)
    cluster = a_cluster_at_work(world)
    if world.chance(0.3):
        one, other = world.rng.sample(list(cluster.hosts), 2)
        world.rng.choice((cluster.network.cut, cluster.network.refuse))(one, other)
    apart_s = world.rng.choice((0.0, 0.01, 0.3))
    for host in cluster.hosts.values():
        host.restarts = False
        host.delays.is_slow = world.chance(0.2)
        world.after(world.between(0.0, apart_s), host.shut_down)
    has_ended = cluster.when(lambda: not cluster.nodes(), STOP_S_MAX)
    assert has_ended, {number: cluster.hosts[number].reports[-3:] for number in cluster.nodes()}
