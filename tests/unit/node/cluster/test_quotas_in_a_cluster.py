"""Every broker knows a changed quota when its change is answered, and so do a node that starts again and the
next controller.
"""

from __future__ import annotations

from harness.simulated_cluster import APART, ClusterClient, SimulatedCluster
from headrace.node.connection import Connection
from headrace.node.node import Node
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest


def change(key: str, value: float | None) -> AlterClientQuotasRequest:
    op = OpData(key=key, value=value or 0.0, remove=value is None)
    entity = [EntityData(entity_type="user", entity_name="ANONYMOUS")]
    return AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])])


def rate_of(cluster: SimulatedCluster, node: Node) -> float | None:
    """The producer_byte_rate of its clients."""
    connection = Connection(99, listener="PLAINTEXT", address="127.0.0.1")
    meters = node.quotas.of(cluster.world.now(), connection, "app")
    return None if meters is None or meters.produce is None else meters.produce.bound


def test_a_quota_is_known_to_every_broker_when_its_change_is_answered() -> None:
    cluster = SimulatedCluster(roles=APART)
    cluster.until(cluster.all_ready)
    client = ClusterClient(cluster, 4)
    brokers = [cluster.node(id) for id in (4, 5)]
    for rate in (1000.0, 500.0, None):
        (changed,) = client.ask(change("producer_byte_rate", rate), 1).entries
        assert changed.error_code == 0
        assert [rate_of(cluster, broker) for broker in brokers] == [rate, rate]


def test_a_node_that_starts_again_knows_the_quotas() -> None:
    cluster = SimulatedCluster()
    cluster.until(cluster.all_ready)
    ClusterClient(cluster, 1).ask(change("producer_byte_rate", 1000.0), 1)
    host = cluster.hosts[2]
    host.kill()
    host.start()
    cluster.until(cluster.all_ready)
    assert rate_of(cluster, cluster.node(2)) == 1000.0


def test_the_next_controller_limits_changes_too() -> None:
    cluster = SimulatedCluster(roles=APART)
    cluster.until(cluster.all_ready)
    client = ClusterClient(cluster, 4)
    client.ask(change("controller_mutation_rate", 1.0), 1)
    leader = cluster.node(4).controller.metadata.leader_id
    cluster.hosts[leader].kill()
    cluster.until(lambda: cluster.node(4).controller.metadata.leader_id not in (leader, -1))
    codes = []
    for name in ("a", "b"):
        topic = CreatableTopic(name=name, num_partitions=20, replication_factor=1)
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        codes.append(answer.topics[0].error_code)
    assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert client.muted_until > cluster.world.mono + 5, "its broker mutes it"
