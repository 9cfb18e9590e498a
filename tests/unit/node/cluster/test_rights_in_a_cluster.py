"""Nodes with an authorizer let each other in, follow the same rules, and know when some are missing."""

from __future__ import annotations

from harness.simulated_cluster import APART, ClusterClient, SimulatedCluster
from headrace.machines.security.acl_rules import Operation, PatternType, Permission, ResourceType
from headrace.node.node import Node
from headrace.node.standard_authorizer import StandardAuthorizer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.simulator.manual_host import ManualHost

GUARDED = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
TWO_VOTERS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094",
}


def authorizer_of(node: Node) -> StandardAuthorizer:
    found = node.access.authorizer
    assert isinstance(found, StandardAuthorizer)
    return found


def may_read(node: Node, principal: str) -> bool:
    rules = authorizer_of(node).rules
    return rules.allows(principal, "127.0.0.1", Operation.READ, ResourceType.TOPIC, "t")


def test_a_voter_that_has_not_caught_up_allows_only_super_users() -> None:
    host = ManualHost(GUARDED | TWO_VOTERS | {"allow.everyone.if.no.acl.found": "true"})
    assert not host.node.controller.metadata.is_caught_up
    assert may_read(host.node, "User:ANONYMOUS")
    assert not may_read(host.node, "User:ada")


RULE = AclCreation(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    resource_pattern_type=PatternType.LITERAL,
    principal="User:ada",
    host="*",
    operation=Operation.READ,
    permission_type=Permission.ALLOW,
)


def test_rules_are_known_to_every_broker_when_their_creation_is_answered() -> None:
    cluster = SimulatedCluster(roles=APART, settings=GUARDED)
    cluster.until(cluster.all_ready)
    nodes = [cluster.node(id) for id in cluster.up]
    assert not any(may_read(node, "User:ada") for node in nodes)
    (created,) = ClusterClient(cluster, 4).ask(CreateAclsRequest(creations=[RULE]), 3).results
    assert created.error_code == 0
    assert all(may_read(cluster.node(broker), "User:ada") for broker in (4, 5))
    cluster.until(lambda: all(may_read(node, "User:ada") for node in nodes))
    assert not any(may_read(node, "User:eve") for node in nodes)


def test_the_controller_asks_who_the_client_of_a_broker_is() -> None:
    cluster = SimulatedCluster(roles=APART, settings=GUARDED)
    cluster.until(cluster.all_ready)
    client = ClusterClient(cluster, 5)
    client.connection.principal = "User:ada"
    (refused,) = client.ask(CreateAclsRequest(creations=[RULE]), 3).results
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_node_that_starts_again_knows_the_rules() -> None:
    cluster = SimulatedCluster(settings=GUARDED)
    cluster.until(cluster.all_ready)
    (created,) = ClusterClient(cluster, 1).ask(CreateAclsRequest(creations=[RULE]), 3).results
    assert created.error_code == 0
    host = cluster.hosts[2]
    host.kill()
    host.start()
    assert not may_read(cluster.node(2), "User:ada")
    cluster.until(cluster.all_ready)
    assert may_read(cluster.node(2), "User:ada")
