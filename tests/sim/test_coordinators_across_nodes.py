"""Groups and transactions on three nodes: each partition has one replica, so that coordinators, groups and
topics are on different nodes. Connections between nodes break and links are slow; nobody dies.
"""

from __future__ import annotations

import pytest

from headrace.machines.metadata.versions import TRANSACTION_VERSION
from headrace.simulator.clients.creator import Creator
from headrace.simulator.clients.downgrader import Downgrader
from headrace.simulator.clients.topics import Topic
from headrace.simulator.cluster import Cluster
from headrace.simulator.cluster_fault_profiles import ClusterProfile
from headrace.simulator.cluster_faults import ClusterFaults
from headrace.simulator.cluster_judges.coordinators_are_led import CoordinatorsAreLed
from headrace.simulator.history import History, PartitionKey
from headrace.simulator.judges import judges_of_clients
from headrace.simulator.plays import CALM_S, HEALING_S
from headrace.simulator.plays.cluster_coordinators import ClusterCoordinators, committed_in, stable_ends
from headrace.simulator.programs.copier import Copier
from headrace.simulator.programs.member import Member
from headrace.simulator.programs.program import Program
from headrace.simulator.programs.reading import GroupKind
from headrace.simulator.programs.sender import Sender
from headrace.simulator.programs.shell import STALL_S_MAX
from headrace.simulator.world import World

TROUBLE_S = 10.0

ONE_REPLICA = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
}

# What may happen to a partition with one replica without making it wait for its node.
ONLY_LINKS = ClusterProfile(
    kill=0,
    lose=0,
    stop_cleanly=0,
    pause=0,
    isolate=0,
    divide=0,
    bridge=0,
    clock_jump=0,
    disk_full=0,
)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_span_nodes(seed: int, version: int) -> None:
    world = World(seed)
    history = History(world, judges_of_clients())
    settings = ClusterCoordinators(world).settings | ONE_REPLICA
    cluster = Cluster(world, history, 3, settings, [CoordinatorsAreLed()])
    configs = {"max.message.bytes": "1000"}
    source, target = Topic("source", 3, configs), Topic("target", 3, configs)
    creator = Creator(cluster, "creator", [source, target], 1)
    cluster.start()
    creator.begin()
    assert cluster.when(lambda: creator.has_created, HEALING_S)
    if version == 1:
        downgrader = Downgrader(cluster, "downgrader", TRANSACTION_VERSION, 1)
        downgrader.begin()
        assert cluster.when(lambda: downgrader.is_done, HEALING_S)
    feeder = Sender(cluster, "feeder", source, acks=-1, is_idempotent=True)
    copying, working = GroupKind("copiers", "classic", "range"), GroupKind("workers", "consumer", "uniform")
    handled: set[tuple[PartitionKey, int]] = set()
    copiers = [
        Copier(cluster, f"copier{n}", source, target, copying, leaves_ghosts=version == 2) for n in (1, 2)
    ]
    member = Member(cluster, "member", source, handled, kind=working, is_static=False, is_auto=False)
    programs: list[Program] = [feeder, *copiers, member]
    faults = ClusterFaults(cluster, programs, ONLY_LINKS, lambda: False)
    for program in programs:
        program.begin()
    faults.begin()
    world.run(world.mono + TROUBLE_S)
    faults.stop()
    feeder.is_stopping = True
    for program in programs:
        program.is_careful = True
    world.run(world.mono + STALL_S_MAX + CALM_S)  # what is under way from earlier has arrived by then
    assert cluster.when(lambda: feeder.is_idle, HEALING_S)

    originals = sorted(value for key in source.keys for _, value in committed_in(cluster, key))
    ends_at = world.mono + HEALING_S
    copies: list[bytes] = []
    while len(copies) < len(originals) and world.mono < ends_at:
        world.run(world.mono + 1)
        copies = [value.split(b":", 2)[2] for key in target.keys for _, value in committed_in(cluster, key)]
    assert sorted(copies) == originals
    assert len(originals) > 20
    assert cluster.when(lambda: len(handled) == len(originals), HEALING_S)
    world.run(world.mono + 5)  # the markers of the last transactions
    assert all(stable == end for stable, end in stable_ends(cluster).values())
