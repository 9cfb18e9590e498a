"""Brokers join a cluster of three, die, freeze, stop and return; the active controller notices in time."""

from __future__ import annotations

from typing import Any

import pytest

from harness.simulated_cluster import APART, ClusterClient, SimulatedCluster
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.fixture(params=range(3))
def cluster(request: pytest.FixtureRequest) -> SimulatedCluster:
    cluster = SimulatedCluster(request.param)
    cluster.until(lambda: cluster.unfenced() == [1, 2, 3] and cluster.all_ready())
    return cluster


def create(cluster: SimulatedCluster, id: int, *, partitions: int = 6, factor: int = 3) -> None:
    wanted = CreatableTopic(name="t", num_partitions=partitions, replication_factor=factor)
    (created,) = (
        ClusterClient(cluster, id).ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7).topics
    )
    assert created.error_code == ErrorCode.NONE, created


def leaders(cluster: SimulatedCluster) -> set[int]:
    return {state.leader for state in cluster.image().topics["t"].partitions.values()}


def test_they_find_each_other_and_agree(cluster: SimulatedCluster) -> None:
    cluster.run(3)
    assert cluster.agrees()
    assert cluster.unfenced() == [1, 2, 3]
    epochs = {id: cluster.node(id).broker.lifecycle.epoch for id in cluster.up}
    assert {id: broker.epoch for id, broker in cluster.image().brokers.items()} == epochs


@pytest.mark.parametrize("id", [1, 2, 3])
def test_every_broker_takes_changes_of_metadata(cluster: SimulatedCluster, id: int) -> None:
    create(cluster, id)
    cluster.until(lambda: all("t" in cluster.image(other).topics for other in cluster.up))
    assert leaders(cluster) == {1, 2, 3}
    created_again = ClusterClient(cluster, id).ask(
        MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True), 9
    )
    (topic,) = created_again.topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("auto", 0, 1)
    assert [broker.node_id for broker in created_again.brokers] == [1, 2, 3]


def test_producer_ids_are_given_once(cluster: SimulatedCluster) -> None:
    clients = {id: ClusterClient(cluster, id) for id in cluster.up}
    taken = []
    for _ in range(3):
        for client in clients.values():
            answer = client.ask(InitProducerIdRequest(transactional_id=None), 4)
            assert answer.error_code == 0
            taken.append(answer.producer_id)
    assert len(set(taken)) == len(taken)


def test_a_broker_that_dies_is_fenced_at_once(cluster: SimulatedCluster) -> None:
    create(cluster, 1)
    active = cluster.active()
    victim = cluster.others(active)[0]
    cluster.hosts[victim].kill()
    assert cluster.until(lambda: victim not in cluster.unfenced()) < 0.5
    assert victim not in leaders(cluster)
    cluster.hosts[victim].start()
    assert cluster.until(lambda: victim in cluster.unfenced() and cluster.all_ready()) < 2


def test_the_active_controller_dies(cluster: SimulatedCluster) -> None:
    create(cluster, 1)
    active = cluster.active()
    assert active is not None
    cluster.hosts[active].kill()
    assert cluster.until(lambda: cluster.active() is not None and active not in cluster.unfenced()) < 1.5
    assert active not in leaders(cluster)
    assert cluster.unfenced() == cluster.up
    create_other = CreatableTopic(name="u", num_partitions=1, replication_factor=2)
    request = CreateTopicsRequest(topics=[create_other], timeout_ms=1000)
    (created,) = ClusterClient(cluster, cluster.up[0]).ask(request, 7).topics
    assert created.error_code == ErrorCode.NONE
    cluster.hosts[active].start()
    cluster.until(lambda: cluster.unfenced() == [1, 2, 3] and cluster.all_ready())
    cluster.run(3)
    assert cluster.agrees()


def test_all_die_and_come_back(cluster: SimulatedCluster) -> None:
    create(cluster, 1)
    for host in cluster.hosts.values():
        host.kill()
    cluster.run(0.3)
    for host in cluster.hosts.values():
        host.start()
    assert cluster.until(lambda: cluster.unfenced() == [1, 2, 3] and cluster.all_ready()) < 3
    assert -1 not in leaders(cluster)


def test_a_frozen_broker_is_fenced_when_its_session_ends_and_comes_back(cluster: SimulatedCluster) -> None:
    create(cluster, 1)
    victim = cluster.others(cluster.active())[0]
    cluster.hosts[victim].pause(12)
    took = cluster.until(lambda: cluster.active() and victim not in cluster.unfenced(), 12)
    assert 7 < took < 10
    assert cluster.until(lambda: victim in cluster.unfenced(), 10) < 6


def test_a_broker_that_stops_hands_over_first(cluster: SimulatedCluster) -> None:
    create(cluster, 1)
    victim = cluster.others(cluster.active())[0]
    led_by_nobody: list[str] = []

    def look(_: Any) -> None:
        if cluster.active() is not None and -1 in leaders(cluster):
            led_by_nobody.append("a partition has no leader")

    for host in cluster.hosts.values():
        host.seen = look
    cluster.hosts[victim].shut_down()
    assert cluster.until(lambda: cluster.hosts[victim].node is None) < 2
    assert victim not in leaders(cluster)
    assert not led_by_nobody
    cluster.hosts[victim].start()
    cluster.until(lambda: cluster.unfenced() == [1, 2, 3])


def test_all_are_stopped_one_after_the_other(cluster: SimulatedCluster) -> None:
    create(cluster, 1)
    for host in cluster.hosts.values():
        host.shut_down()
    cluster.until(lambda: not cluster.up, 25)


@pytest.mark.parametrize("seed", range(3))
def test_brokers_and_controllers_apart(seed: int) -> None:
    cluster = SimulatedCluster(seed, roles=APART)
    cluster.until(lambda: cluster.unfenced() == [4, 5] and cluster.all_ready())
    create(cluster, 4, factor=2)
    assert leaders(cluster) == {4, 5}
    active = cluster.active()
    assert active is not None
    cluster.hosts[active].kill()
    assert cluster.until(lambda: cluster.active() is not None) < 1.5
    assert cluster.unfenced() == [4, 5]
    cluster.hosts[5].kill()
    assert cluster.until(lambda: cluster.unfenced() == [4]) < 0.5, "also by a controller that is new"
    cluster.hosts[5].start()
    cluster.until(lambda: cluster.unfenced() == [4, 5] and cluster.all_ready())
    cluster.hosts[5].shut_down()
    assert cluster.until(lambda: cluster.hosts[5].node is None) < 2
    assert leaders(cluster) == {4}
