"""CreateAcls, DescribeAcls and DeleteAcls: as Apache Kafka 4.3.1 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import Anybody, Nobody
from harness.golden_answers import golden
from headrace.node.authorization import Operation, Resource
from headrace.node.not_controller import is_from_no_controller, refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest
from headrace.simulator.manual_host import ManualHost

ANY, TOPIC, CLUSTER, LITERAL, PREFIXED, READ, ALLOW = 1, 2, 4, 3, 4, 3, 3


def guarded(host: ManualHost | None = None) -> ManualHost:
    host = host or ManualHost()
    host.node.access.authorizer = Anybody()
    return host


def creation(name: str = "orders", principal: str = "User:ada", **changed: int) -> AclCreation:
    values: dict[str, Any] = {"resource_type": TOPIC, "operation": READ, "permission_type": ALLOW, **changed}
    return AclCreation(resource_name=name, principal=principal, host="*", **values)


def create(host: ManualHost, *creations: AclCreation, version: int = 3) -> list[int]:
    results = host.ask(CreateAclsRequest(creations=list(creations)), version).results
    return [result.error_code for result in results]


def everything() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def filter_for(name: str | None) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=ANY,
        resource_name_filter=name,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def listed(host: ManualHost) -> list[tuple[int, str, int, str]]:
    response = host.ask(everything(), 3)
    assert response.error_code == 0
    return [
        (one.resource_type, one.resource_name, one.pattern_type, rule.principal)
        for one in response.resources
        for rule in one.acls
    ]


class TestAsKafka:
    def test_creation(self) -> None:
        for version, request, answer in golden("create_acls"):
            assert guarded().ask(request, version) == answer

    def test_description(self) -> None:
        host = guarded()
        (version, request, _), *_ = golden("create_acls")
        host.ask(request, version)
        for version, request, answer in golden("describe_acls"):
            if answer.error_code:
                assert ManualHost().ask(request, version) == answer  # without an authorizer
                continue
            answer.resources.sort(key=lambda one: one.pattern_type)
            assert host.ask(request, version) == answer

    def test_deletion(self) -> None:
        host = guarded()
        (version, request, _), *_ = golden("create_acls")
        host.ask(request, version)
        for version, request, answer in golden("delete_acls"):
            assert host.ask(request, version) == answer
        assert listed(host) == []


def test_rules_of_a_resource_are_together() -> None:
    host = guarded()
    rules = [
        creation("b"),
        creation("a", "User:bob"),
        creation("a"),
        creation("a", resource_pattern_type=PREFIXED),
    ]
    assert create(host, *rules) == [0] * 4
    assert listed(host) == [
        (TOPIC, "a", LITERAL, "User:ada"),
        (TOPIC, "a", LITERAL, "User:bob"),
        (TOPIC, "a", PREFIXED, "User:ada"),
        (TOPIC, "b", LITERAL, "User:ada"),
    ]
    assert [len(one.acls) for one in host.ask(everything(), 3).resources] == [2, 1, 1]


def test_rules_are_there_after_a_restart() -> None:
    host = guarded()
    assert create(host, creation(), creation("other")) == [0, 0]
    host.ask(DeleteAclsRequest(filters=[filter_for("other")]), 3)
    host.restart()
    assert listed(guarded(host)) == [(TOPIC, "orders", LITERAL, "User:ada")]


def test_the_only_cluster_is_the_cluster() -> None:
    host = guarded()
    (result,) = host.ask(CreateAclsRequest(creations=[creation(resource_type=CLUSTER)]), 3).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "The only valid name for the CLUSTER resource is kafka-cluster"
    assert create(host, creation("kafka-cluster", resource_type=CLUSTER)) == [0]


def test_unknown_parts_of_filters() -> None:
    host = guarded()
    wrong = everything()
    wrong.operation = 99
    assert host.ask(wrong, 3).error_code == ErrorCode.INVALID_REQUEST
    unknown = filter_for(None)
    unknown.permission_type = 99
    (result,) = host.ask(DeleteAclsRequest(filters=[unknown]), 3).filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.INVALID_REQUEST, [])


def test_without_an_authorizer_there_are_no_rules() -> None:
    host = ManualHost()
    disabled = ErrorCode.SECURITY_DISABLED
    assert create(host, creation()) == [disabled]
    (result,) = host.ask(DeleteAclsRequest(filters=[filter_for(None)]), 3).filter_results
    assert (result.error_code, result.error_message) == (disabled, "No Authorizer is configured.")
    assert host.ask(everything(), 3).error_code == disabled


def test_not_everybody_may() -> None:
    host = ManualHost()
    nobody = host.node.access.authorizer = Nobody()
    refused_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert create(host, creation(), creation("other")) == [refused_code] * 2
    (result,) = host.ask(DeleteAclsRequest(filters=[filter_for(None)]), 3).filter_results
    assert result.error_code == refused_code
    assert host.ask(everything(), 3).error_code == refused_code
    alter = (Operation.ALTER, Resource.CLUSTER, "kafka-cluster")
    assert nobody.asked == [alter, alter, (Operation.DESCRIBE, Resource.CLUSTER, "kafka-cluster")]


@pytest.mark.parametrize(
    "request_", [CreateAclsRequest(creations=[creation()]), DeleteAclsRequest(filters=[filter_for(None)])]
)
def test_who_is_not_the_controller_says_so(request_: Any) -> None:
    assert is_from_no_controller(refused(request_.KEY, 3, request_, ErrorCode.NOT_CONTROLLER))
