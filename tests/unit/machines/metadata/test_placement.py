"""Where the replicas of new partitions go: racks first, then an even spread."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster


def placed(cluster: Cluster, partitions: int, factor: int) -> list[tuple[int, ...]]:
    name = f"t{len(cluster.image.topics)}"
    (created,) = cluster.apply(cluster.controller.create_topics([NewTopic(name, partitions, factor)]))
    assert created.error is ErrorCode.NONE, created.message
    return [state.replicas for state in cluster.image.topics[name].partitions.values()]


@pytest.mark.parametrize("racks", [{}, {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}])
def test_leaders_and_followers_are_spread_evenly(racks: dict[int, str]) -> None:
    replicas = placed(Cluster(6, racks=racks), 60, 3)
    assert set(Counter(one[0] for one in replicas).values()) == {10}
    assert all(len(set(one)) == 3 for one in replicas)
    for broker in range(1, 7):
        followers = Counter(other for first, *others in replicas if first == broker for other in others)
        assert len(followers) >= 4, "the load of a lost leader spreads over most of the others"


def test_replicas_are_on_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "c"}
    for replicas in placed(Cluster(6, racks=racks), 30, 3):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


def test_with_fewer_racks_than_replicas_each_rack_has_some() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    for replicas in placed(Cluster(4, racks=racks), 20, 3):
        assert 4 in replicas


def test_brokers_without_a_rack_are_together_one_rack() -> None:
    for replicas in placed(Cluster(3, racks={1: "a"}), 10, 2):
        assert 1 in replicas


def test_a_fenced_broker_gets_replicas_only_if_it_must_and_is_not_in_sync() -> None:
    cluster = Cluster(3)
    cluster.fence(2)
    assert all(2 not in replicas for replicas in placed(cluster, 10, 2))
    for replicas in placed(cluster, 10, 3):
        assert replicas[2] == 2
    for state in cluster.image.topics["t1"].partitions.values():
        assert sorted(state.isr) == [1, 3]
        assert state.leader == state.replicas[0]


@pytest.mark.parametrize(("fenced", "says"), [((), "only 2 broker"), ((1, 2), "all brokers are fenced")])
def test_too_few_brokers(fenced: tuple[int, ...], says: str) -> None:
    cluster = Cluster(2)
    cluster.fence(*fenced)
    (created,) = cluster.controller.create_topics([NewTopic("t", 1, 2 if fenced else 3)]).reply
    assert created.error is ErrorCode.INVALID_REPLICATION_FACTOR
    assert says in (created.message or "")
