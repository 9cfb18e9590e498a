"""Decisions about access rules."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.controller import access_rules
from headrace.machines.metadata.controller.access_rules import find_rules
from headrace.machines.metadata.controller.decision import RECORDS_MAX, Refusal
from headrace.machines.security.acl_rules import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster

NONE = ErrorCode.NONE


def rule(name: str = "orders", principal: str = "User:ada", **changed: int) -> AclRule:
    made = AclRule(
        ResourceType.TOPIC, name, PatternType.LITERAL, principal, "*", Operation.READ, Permission.ALLOW
    )
    return made._replace(**changed)  # type: ignore[arg-type]


def exactly(one: AclRule) -> AclFilter:
    return AclFilter(*one)


def create(cluster: Cluster, *rules: AclRule) -> list[ErrorCode]:
    return [one.error for one in cluster.apply(cluster.controller.create_rules(rules))]


def delete(cluster: Cluster, *filters: AclFilter) -> list[list[AclRule]]:
    return [one.rules for one in cluster.apply(cluster.controller.delete_rules(filters))]


def test_a_rule_is_there_once() -> None:
    cluster = Cluster()
    assert create(cluster, rule(), rule()) == [NONE, NONE]
    assert cluster.controller.create_rules([rule()]).records == []
    assert list(cluster.image.security.rules.values()) == [rule()]


@pytest.mark.parametrize(
    "wrong",
    [
        rule(name=""),
        rule(principal="ada"),
        rule(pattern_type=PatternType.MATCH),
        rule(operation=Operation.ANY),
        rule(operation=99),
        rule(permission=Permission.ANY),
        rule(resource_type=ResourceType.ANY),
        rule(resource_type=ResourceType.CLUSTER),
    ],
)
def test_a_wrong_rule_does_not_hold_up_the_others(wrong: AclRule) -> None:
    cluster = Cluster()
    assert create(cluster, wrong, rule()) == [ErrorCode.INVALID_REQUEST, NONE]
    assert list(cluster.image.security.rules.values()) == [rule()]


def test_what_filters_match_is_deleted_once_and_told_by_each() -> None:
    cluster = Cluster()
    kept, prefixed = rule("other"), rule("ord", pattern_type=PatternType.PREFIXED)
    create(cluster, rule(), kept, prefixed)
    match = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH)
    told = delete(cluster, match, exactly(rule()), exactly(rule("nowhere")), match)
    assert told == [sorted([rule(), prefixed]), [rule()], [], sorted([rule(), prefixed])]
    assert list(cluster.image.security.rules.values()) == [kept]
    assert delete(cluster, AclFilter()) == [[kept]]
    assert (cluster.image.security.rules, cluster.image.security.rule_ids) == ({}, {})


def test_a_filter_of_unknown_parts_deletes_nothing() -> None:
    cluster = Cluster()
    create(cluster, rule())
    decision = cluster.controller.delete_rules([AclFilter(operation=99), AclFilter(resource_type=99)])
    assert [(one.error, one.message, one.rules) for one in decision.reply] == [
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.", []),
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.", []),
    ]
    assert decision.records == []


def test_a_request_has_at_most_as_many_records_as_kafka_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RECORDS_MAX == 10_000
    monkeypatch.setattr(access_rules, "RECORDS_MAX", 3)
    cluster = Cluster()
    rules = [rule(f"t{number}") for number in range(4)]
    assert create(cluster, *rules[:3], *rules[:3]) == [NONE] * 6
    with pytest.raises(Refusal, match="excessively large") as refusal:
        cluster.controller.create_rules([rule(f"u{number}") for number in range(4)])
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    create(cluster, rules[3])
    with pytest.raises(Refusal, match="excessively large"):
        cluster.controller.delete_rules([AclFilter()])
    assert delete(cluster, *map(exactly, rules[:3])) == [[one] for one in rules[:3]]


def test_many_filters_do_not_look_at_all_rules_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_rules, "LOOKED_AT_MAX", 100)
    cluster = Cluster()
    create(cluster, *(rule(f"t{number}") for number in range(10)))
    delete(cluster, *(exactly(rule(f"u{number}")) for number in range(100)))
    for filters in (
        [AclFilter(host=f"10.0.0.{number}") for number in range(11)],
        [AclFilter(principal="User:ada")] * 11,
    ):
        with pytest.raises(Refusal, match="excessively large"):
            cluster.controller.delete_rules(filters)


def test_rules_are_found_in_order() -> None:
    cluster = Cluster()
    create(cluster, rule("b"), rule("a"), rule("a", operation=Operation.ALL))
    found = find_rules(cluster.image.security, AclFilter(principal="User:ada"))
    assert found == [rule("a", operation=Operation.ALL), rule("a"), rule("b")]
