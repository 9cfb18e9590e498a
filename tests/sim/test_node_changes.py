"""Judges learn which partitions have changed since they looked, and whether the quorum has."""

from __future__ import annotations

from headrace.simulator.clients.creator import Creator
from headrace.simulator.clients.topics import Topic
from headrace.simulator.cluster import Cluster
from headrace.simulator.history import History
from headrace.simulator.node_changes import NodeChanges
from headrace.simulator.world import World


def test_each_change_is_told_once() -> None:
    world = World(1)
    cluster = Cluster(world, History(world, []), 1, {}, [])
    creator = Creator(cluster, "creator", [Topic("notes", 2, {})], 1)
    cluster.start()
    creator.begin()
    assert cluster.when(lambda: creator.has_created, 60)
    world.run(world.mono + 5)
    host, changes = cluster.hosts[1], NodeChanges()
    node = host.node
    assert node is not None
    first = changes.take(host, node)
    assert first.has_quorum
    assert [(one.topic, one.index) for one in first.partitions] == [("notes", 0), ("notes", 1)]

    again = changes.take(host, node)
    assert (again.partitions, again.has_quorum) == ([], False)

    changed = first.partitions[1]
    log, leader = changed.opened(world.now()), changed.leader
    assert leader is not None
    changes.take(host, node)
    log.log_end_offset += 1
    assert changes.take(host, node).partitions == [changed]
    leader.high_watermark += 1  # type: ignore[assignment]
    assert changes.take(host, node).partitions == [changed]
    changed.is_offline = True
    assert changes.take(host, node).partitions == [changed]
    assert changes.take(host, node).partitions == []

    node.broker.lifecycle.epoch += 1
    assert changes.take(host, node).partitions == first.partitions
