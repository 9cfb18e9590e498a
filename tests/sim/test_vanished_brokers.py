"""A broker ends: what the others tell its clients from the first millisecond on, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from harness.simulated_cluster import ClusterClient, SimulatedCluster
from headrace.node.vanished_brokers import TOLD_SECONDS
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest


@pytest.fixture(params=range(3))
def cluster(request: pytest.FixtureRequest) -> SimulatedCluster:
    cluster = SimulatedCluster(
        request.param, settings={"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1"}
    )
    cluster.until(lambda: cluster.unfenced() == [1, 2, 3] and cluster.all_ready())
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=3)
    ClusterClient(cluster, 1).ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    cluster.until(lambda: all(is_in_sync(cluster, id) for id in cluster.up))
    cluster.run(1)
    return cluster


def is_in_sync(cluster: SimulatedCluster, id: int) -> bool:
    """As that node knows it."""
    topic = cluster.image(id).topics.get("t")
    return topic is not None and all(set(state.isr) == {1, 2, 3} for state in topic.partitions.values())


def leaders(answer: Any) -> set[int]:
    return {partition.leader_id for topic in answer.topics for partition in topic.partitions}


def brokers(answer: Any) -> list[int]:
    return [broker.node_id for broker in answer.brokers]


def doubts(cluster: SimulatedCluster, id: int, leader: int) -> bool:
    """Whether node `id` takes that leader for gone."""
    found: list[bool] = []
    cluster.hosts[id].touch(lambda node, now: found.append(node.broker.vanished.doubts(now, [leader])))
    return found == [True]


def lose(cluster: SimulatedCluster, victim: int) -> int:
    """The broker ends; another that knows this, and does not know its successors yet."""
    asked = cluster.others(victim)[-1]
    cluster.hosts[victim].kill()
    while not doubts(cluster, asked, victim):
        cluster.run(0.0001)
    told = cluster.image(asked).topics["t"].partitions.values()
    assert victim in {state.leader for state in told}, "the metadata were quicker than the connection's end"
    return asked


@pytest.mark.parametrize("topics", [("t",), ()], ids=["one topic", "all topics"])
def test_metadata_wait_until_there_is_another_leader(
    cluster: SimulatedCluster, topics: tuple[str, ...]
) -> None:
    victim = cluster.others(cluster.active())[0]
    client = ClusterClient(cluster, lose(cluster, victim))
    began = cluster.world.mono
    answer = client.metadata(*topics)
    assert victim not in leaders(answer)
    assert -1 not in leaders(answer)
    assert cluster.world.mono - began < 0.5


def test_metadata_wait_also_for_another_controller(cluster: SimulatedCluster) -> None:
    victim = cluster.active()
    assert victim is not None
    answer = ClusterClient(cluster, lose(cluster, victim)).metadata("t")
    assert victim not in leaders(answer)


def test_a_fenced_broker_is_named_for_a_while_and_leads_nothing(cluster: SimulatedCluster) -> None:
    victim = cluster.others(cluster.active())[0]
    client = ClusterClient(cluster, lose(cluster, victim))
    answer = client.metadata("t")
    assert (brokers(answer), victim in leaders(answer)) == ([1, 2, 3], False)
    assert all(partition.offline_replicas == [victim] for partition in answer.topics[0].partitions)
    cluster.run(TOLD_SECONDS)
    assert brokers(client.metadata("t")) == cluster.up


def test_a_broker_that_stops_is_not_named_any_more(cluster: SimulatedCluster) -> None:
    victim, asked = cluster.others(cluster.active())
    cluster.hosts[victim].shut_down()
    cluster.until(lambda: cluster.hosts[victim].node is None)
    cluster.until(lambda: victim not in {broker.id for broker in cluster.image(asked).live_brokers()})
    assert brokers(ClusterClient(cluster, asked).metadata("t")) == cluster.up


def test_a_broker_that_only_closed_a_connection_is_named_as_soon_as_it_answers(
    cluster: SimulatedCluster,
) -> None:
    leader, asked = cluster.others(cluster.active())
    cluster.hosts[asked].touch(lambda node, now: node.peers.close(leader, "replica"))
    while not doubts(cluster, asked, leader):
        cluster.run(0.0001)
    began = cluster.world.mono
    assert leader in leaders(ClusterClient(cluster, asked).metadata("t"))
    assert cluster.world.mono - began < 0.2


def test_nobody_waits_longer_than_for_an_election(cluster: SimulatedCluster) -> None:
    """The leader cannot be reached from here, and the controller does not know."""
    leader, asked = cluster.others(cluster.active())
    cluster.network.refuse(asked, leader)
    cluster.until(lambda: doubts(cluster, asked, leader))
    client = ClusterClient(cluster, asked)
    began = cluster.world.mono
    assert leader in leaders(client.metadata("t"))
    assert 0.5 < cluster.world.mono - began < 1.1
    began = cluster.world.mono
    client.metadata("t")
    assert cluster.world.mono - began < 0.01


def test_a_coordinator_that_is_gone_is_not_named(cluster: SimulatedCluster) -> None:
    question = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])

    def found(id: int) -> int:
        (coordinator,) = ClusterClient(cluster, id).ask(question, 4).coordinators
        return coordinator.node_id if coordinator.error_code == 0 else -1

    cluster.until(lambda: found(1) > 0)
    cluster.run(1)
    victim = found(1)
    assert found(lose(cluster, victim)) not in (-1, victim)
