"""AlterClientQuotas and DescribeClientQuotas: as Apache Kafka 4.3.1 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import Nobody
from harness.golden_answers import golden
from headrace.node.authorization import Operation, Resource
from headrace.node.not_controller import is_from_no_controller, refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from headrace.simulator.manual_host import ManualHost

EXACT, DEFAULT = 0, 1
Parts = list[tuple[str, str | None]]
ADA: Parts = [("user", "ada"), ("client-id", None)]


def entry(parts: Parts, **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(
    host: ManualHost, *entries: EntryData, version: int = 1, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [(one.error_code, one.error_message) for one in host.ask(request, version).entries]


def described(response: Any) -> list[tuple[Parts, dict[str, float]]]:
    assert response.error_code == 0
    return [
        ([(part.entity_type, part.entity_name) for part in one.entity], {v.key: v.value for v in one.values})
        for one in response.entries
    ]


def listed(host: ManualHost, version: int = 1) -> list[tuple[Parts, dict[str, float]]]:
    return described(host.ask(DescribeClientQuotasRequest(), version))


def test_as_kafka() -> None:
    for version, request, answer in golden("describe_client_quotas"):
        assert ManualHost().ask(request, version) == answer
    for version, request, answer in golden("alter_client_quotas"):
        for one in answer.entries:
            one.entity.reverse()  # a hash map's order
        assert ManualHost().ask(request, version) == answer


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_there_after_a_restart(version: int) -> None:
    host = ManualHost()
    address = entry([("ip", None)], connection_creation_rate=3.0)
    rates = entry(ADA, producer_byte_rate=1024.0, request_percentage=12.5)
    assert alter(host, rates, address, version=version) == [(0, None)] * 2
    assert alter(host, entry(ADA, producer_byte_rate=None), version=version) == [(0, None)]
    host.restart()
    assert listed(host, version) == [
        ([("ip", None)], {"connection_creation_rate": 3.0}),
        (ADA, {"request_percentage": 12.5}),
    ]


def test_a_request_that_is_only_tried() -> None:
    host = ManualHost()
    assert alter(host, entry(ADA, producer_byte_rate=1.0), validate_only=True) == [(0, None)]
    assert listed(host) == []


def test_one_entity_is_refused_and_the_other_is_not() -> None:
    host = ManualHost()
    wrong, right = entry([("user", "bob")], nonsense=1.0), entry(ADA, producer_byte_rate=1.0)
    assert alter(host, wrong, right) == [
        (ErrorCode.INVALID_REQUEST, "Invalid configuration key nonsense"),
        (0, None),
    ]
    assert [parts for parts, _ in listed(host)] == [ADA]


def test_filters() -> None:
    host = ManualHost()
    alter(host, entry(ADA, producer_byte_rate=1.0), entry([("user", "ada")], producer_byte_rate=2.0))
    user = ComponentData(entity_type="user", match_type=EXACT, match="ada")
    client = ComponentData(entity_type="client-id", match_type=DEFAULT, match=None)

    def ask(*components: ComponentData, strict: bool) -> Any:
        return host.ask(DescribeClientQuotasRequest(components=list(components), strict=strict), 1)

    assert [parts for parts, _ in described(ask(user, client, strict=True))] == [ADA]
    assert [parts for parts, _ in described(ask(user, strict=True))] == [[("user", "ada")]]
    assert len(described(ask(user, strict=False))) == 2
    wrong = ask(user, user, strict=False)
    assert (wrong.error_code, wrong.entries) == (ErrorCode.INVALID_REQUEST, None)


def test_not_everybody_may() -> None:
    host = ManualHost()
    nobody = host.node.access.authorizer = Nobody()
    refused_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ((code, _),) = alter(host, entry(ADA, producer_byte_rate=1.0))
    assert code == refused_code
    told = host.ask(DescribeClientQuotasRequest(), 1)
    assert (told.error_code, told.entries) == (refused_code, None)
    assert nobody.asked == [
        (Operation.ALTER_CONFIGS, Resource.CLUSTER, "kafka-cluster"),
        (Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, "kafka-cluster"),
    ]


def test_who_is_not_the_controller_says_so() -> None:
    request = AlterClientQuotasRequest(entries=[entry(ADA, producer_byte_rate=1.0)])
    assert is_from_no_controller(refused(request.KEY, 1, request, ErrorCode.NOT_CONTROLLER))
