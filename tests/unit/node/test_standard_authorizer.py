"""A node whose settings name an authorizer: who is let in, by which name, from where, and from when on."""

from __future__ import annotations

import pytest

from harness.node_groups import commit, find
from harness.rules import Rules
from headrace.machines.security.acl_rules import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.node.connection import ANONYMOUS, NODE_ITSELF, Connection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.simulator.manual_host import ManualHost

GUARDED = {"authorizer.class.name": "standard", "super.users": "User:admin"}
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def creates(host: ManualHost, name: str, principal: str, address: str = "127.0.0.1") -> int:
    connection = host.connect()
    connection.principal = principal
    connection.address = address
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (result,) = host.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7, connection).topics
    code: int = result.error_code
    return code


class TestSettings:
    def test_super_users_may_do_everything_and_others_nothing(self) -> None:
        host = ManualHost(GUARDED)
        assert creates(host, "t", "User:ada") == REFUSED
        assert creates(host, "t", ANONYMOUS) == REFUSED
        assert creates(host, "t", "User:admin") == 0
        host.restart()
        assert creates(host, "u", "User:ada") == REFUSED
        assert creates(host, "u", "User:admin") == 0

    def test_what_the_node_does_itself_needs_no_rule(self) -> None:
        host = ManualHost(GUARDED)
        assert creates(host, "t", NODE_ITSELF) == 0

    def test_everybody_is_allowed_what_no_rule_is_about(self) -> None:
        host = ManualHost(GUARDED | {"allow.everyone.if.no.acl.found": "true"})
        assert creates(host, "t", "User:ada") == 0

    def test_without_an_authorizer_nothing_is_asked(self) -> None:
        host = ManualHost()
        assert host.node.access.authorizer is None
        assert host.node.access.rights is None


class TestRules:
    def test_until_they_are_loaded_only_super_users_are_allowed_anything(self) -> None:
        host = ManualHost()
        rules = Rules(host, "User:admin", allows_if_no_rule=True, is_loaded=False)
        rules.allow(Operation.ALL, TOPIC, "*")
        assert creates(host, "t", ANONYMOUS) == REFUSED
        assert creates(host, "u", "User:admin") == 0
        rules.authorizer.caught_up(host.clock.now())
        assert creates(host, "t", ANONYMOUS) == 0

    def test_of_the_principal_on_the_connection(self) -> None:
        host = ManualHost()
        Rules(host).allow(Operation.CREATE, TOPIC, "a-", "User:ada", pattern=PatternType.PREFIXED)
        assert creates(host, "a-1", "User:ada") == 0
        assert creates(host, "a-2", "User:eve") == REFUSED
        assert creates(host, "b", "User:ada") == REFUSED

    @pytest.mark.parametrize(
        ("rule", "address", "is_allowed"),
        [
            ("10.0.0.1", "10.0.0.1", True),
            ("10.0.0.1", "::ffff:10.0.0.1", True),
            ("10.0.0.1", "10.0.0.2", False),
            ("::1", "0:0:0:0:0:0:0:1", True),
            ("*", "10.0.0.2", True),
        ],
    )
    def test_of_the_address(self, rule: str, address: str, is_allowed: bool) -> None:
        host = ManualHost()
        Rules(host).allow(Operation.CREATE, CLUSTER, CLUSTER_NAME, "User:ada", host=rule)
        assert creates(host, "t", "User:ada", address) == (0 if is_allowed else REFUSED)


class TestRulesOfTheCluster:
    """Rules that are created and deleted with Kafka's requests."""

    RULE = AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:ada",
        host="*",
        operation=Operation.CREATE,
        permission_type=Permission.ALLOW,
    )

    @staticmethod
    def admin(host: ManualHost) -> Connection:
        connection = host.connect()
        connection.principal = "User:admin"
        return connection

    def create(self, host: ManualHost) -> None:
        request = CreateAclsRequest(creations=[self.RULE])
        (created,) = host.ask(request, 3, self.admin(host)).results
        assert created.error_code == 0

    def delete(self, host: ManualHost) -> None:
        which = DeleteAclsFilter(
            resource_type_filter=TOPIC,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        (deleted,) = host.ask(DeleteAclsRequest(filters=[which]), 3, self.admin(host)).filter_results
        assert (deleted.error_code, len(deleted.matching_acls)) == (0, 1)

    def test_they_count_as_soon_as_the_answer_is_there(self) -> None:
        host = ManualHost(GUARDED)
        assert creates(host, "t", "User:ada") == REFUSED
        self.create(host)
        assert creates(host, "t", "User:ada") == 0
        assert creates(host, "u", "User:ada") == REFUSED
        self.delete(host)
        assert creates(host, "t", "User:ada") == REFUSED

    def test_they_are_there_after_a_restart(self) -> None:
        host = ManualHost(GUARDED)
        self.create(host)
        host.restart()
        assert creates(host, "t", "User:ada") == 0
        self.delete(host)
        host.restart()
        assert creates(host, "t", "User:ada") == REFUSED

    def test_only_who_may_alter_the_cluster_changes_them(self) -> None:
        host = ManualHost(GUARDED)
        connection = host.connect()
        (refused,) = host.ask(CreateAclsRequest(creations=[self.RULE]), 3, connection).results
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert creates(host, "t", "User:ada") == REFUSED


class TestAuthorizedOperations:
    """The bits are those of the client that asks."""

    @staticmethod
    def bits(*operations: Operation) -> int:
        return sum(1 << operation for operation in operations)

    def test_of_a_topic(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        rules = Rules(host)
        rules.allow(Operation.WRITE, TOPIC, "t")
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
        )
        (topic,) = host.ask(request, 12).topics
        assert topic.topic_authorized_operations == self.bits(Operation.WRITE, Operation.DESCRIBE)
        rules.deny(Operation.WRITE, TOPIC, "t")
        (topic,) = host.ask(request, 12).topics
        assert topic.topic_authorized_operations == self.bits(Operation.DESCRIBE)

    def test_of_the_cluster(self) -> None:
        host = ManualHost()
        rules = Rules(host)
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert host.ask(request, 1).cluster_authorized_operations == 0
        metadata = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        assert host.ask(metadata, 10).cluster_authorized_operations == 0
        rules.allow(Operation.ALTER, CLUSTER, CLUSTER_NAME)
        found = self.bits(Operation.ALTER, Operation.DESCRIBE)
        assert host.ask(request, 1).cluster_authorized_operations == found
        assert host.ask(metadata, 10).cluster_authorized_operations == found

    def test_of_a_group(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        find(host, "g")
        assert commit(host, "g", "t", 1) == 0
        Rules(host).allow(Operation.DELETE, ResourceType.GROUP, "g")
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        (group,) = host.ask(request, 5).groups
        assert group.authorized_operations == self.bits(Operation.DELETE, Operation.DESCRIBE)
