"""Changing settings, one key at a time or all at once."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.controller.alter_configs import (
    AlteredResource,
    KeyChange,
    Operation,
    ResourceChange,
)
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster

SET, DELETE, APPEND, SUBTRACT = Operation


def cluster_with_topic(**static: str) -> Cluster:
    cluster = Cluster(static={key.replace("_", "."): value for key, value in static.items()})
    cluster.apply(cluster.controller.create_topics([NewTopic("t")]))
    return cluster


def alter(cluster: Cluster, kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlteredResource:
    change = ResourceChange(kind, name, [KeyChange(*each) for each in changes])
    (result,) = cluster.apply(cluster.controller.alter_configs([change]))
    return result


def test_set_delete_append_subtract() -> None:
    cluster = cluster_with_topic()
    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")).error is ErrorCode.NONE
    alter(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", APPEND, "compact"))
    assert cluster.image.topic_config("t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    alter(
        cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)
    )
    assert cluster.image.topic_config("t") == {"cleanup.policy": "compact"}
    alter(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", DELETE, None))
    assert cluster.image.configs == {}


def test_appending_begins_from_what_is_in_force() -> None:
    cluster = cluster_with_topic(log_cleanup_policy="compact")
    alter(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", APPEND, "delete"))
    assert cluster.image.topic_config("t") == {"cleanup.policy": "compact,delete"}


def test_what_stays_the_same_writes_no_record() -> None:
    cluster = cluster_with_topic()
    alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"))
    again = ResourceChange(TOPIC_RESOURCE, "t", [KeyChange("retention.ms", SET, "5")])
    assert cluster.controller.alter_configs([again]).records == []


def test_validate_only_writes_nothing() -> None:
    cluster = cluster_with_topic()
    change = ResourceChange(TOPIC_RESOURCE, "t", [KeyChange("retention.ms", SET, "5")])
    decision = cluster.controller.alter_configs([change], validate_only=True)
    assert (decision.records, decision.reply[0].error) == ([], ErrorCode.NONE)


def test_a_resource_changes_completely_or_not_at_all() -> None:
    cluster = cluster_with_topic()
    result = alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"), ("bogus", SET, "1"))
    assert result.error is ErrorCode.INVALID_CONFIG
    assert cluster.image.topic_config("t") == {}


def test_the_old_form_replaces_everything() -> None:
    cluster = cluster_with_topic()
    alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"))
    change = ResourceChange(TOPIC_RESOURCE, "t", [KeyChange("segment.ms", SET, "7")], replaces_all=True)
    cluster.apply(cluster.controller.alter_configs([change]))
    assert cluster.image.topic_config("t") == {"segment.ms": "7"}


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("foo", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: foo"),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value not supported"),
        (("retention.ms", SET, ""), ErrorCode.INVALID_CONFIG, "Not a number"),
        (("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG, "its type is not LIST"),
        (("cleanup.policy", APPEND, "zap"), ErrorCode.INVALID_CONFIG, "String must be one of"),
        (("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST, "Unknown operation"),
    ],
)
def test_refused_for_a_topic(change: tuple[str, int, str | None], code: ErrorCode, says: str) -> None:
    result = alter(cluster_with_topic(), TOPIC_RESOURCE, "t", change)
    assert result.error is code
    assert says in (result.message or "")


def test_a_topic_that_is_not_there() -> None:
    result = alter(cluster_with_topic(), TOPIC_RESOURCE, "nope", ("retention.ms", SET, "1"))
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_one_by_one_and_all_at_once() -> None:
    cluster = cluster_with_topic()
    alter(cluster, BROKER_RESOURCE, "1", ("log.retention.ms", SET, "60000"))
    alter(cluster, BROKER_RESOURCE, "", ("log.retention.ms", SET, "70000"))
    assert cluster.image.broker_config(1) == {"log.retention.ms": "60000"}
    assert cluster.image.cluster_config == {"log.retention.ms": "70000"}
    assert cluster.controller.topic_defaults()["retention.ms"] == 70000


def test_certificates_of_one_broker() -> None:
    """As in Kafka: for all of its listeners, or for one of them."""
    cluster = cluster_with_topic()
    changed = {"ssl.truststore.location": "ca.pem", "listener.name.outside.ssl.keystore.location": "new.pem"}
    result = alter(cluster, BROKER_RESOURCE, "1", *((key, SET, text) for key, text in changed.items()))
    assert result.error is ErrorCode.NONE
    assert cluster.image.broker_config(1) == changed


@pytest.mark.parametrize(
    ("name", "change", "code", "says"),
    [
        ("1", ("num.partitions", SET, "4"), ErrorCode.INVALID_REQUEST, "dynamically: [num.partitions]"),
        ("1", ("log.retention.ms", SET, "abc"), ErrorCode.INVALID_REQUEST, "Not a number"),
        ("", ("sasl.kerberos.kinit.cmd", SET, "x"), ErrorCode.INVALID_REQUEST, "only for one"),
        ("1", ("ssl.client.auth", SET, "required"), ErrorCode.INVALID_REQUEST, "dynamically"),
        ("", ("ssl.keystore.location", SET, "x"), ErrorCode.INVALID_REQUEST, "only for one"),
        ("", ("listener.name.a.ssl.keystore.location", SET, "x"), ErrorCode.INVALID_REQUEST, "only for one"),
        ("1", ("listener.name.a.ssl.client.auth", SET, "none"), ErrorCode.INVALID_CONFIG, "ssl.client.auth"),
        ("1", ("listener.name.A.ssl.keystore.location", SET, "x"), ErrorCode.INVALID_CONFIG, "listener"),
        ("1", ("listener.name.ssl.keystore.location", SET, "x"), ErrorCode.INVALID_CONFIG, "listener"),
        ("9", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "no broker 9"),
        ("x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("1", ("log.retntion.ms", SET, "1"), ErrorCode.INVALID_CONFIG, "did you mean log.retention.ms?"),
    ],
)
def test_refused_for_a_broker(
    name: str, change: tuple[str, int, str | None], code: ErrorCode, says: str
) -> None:
    result = alter(cluster_with_topic(), BROKER_RESOURCE, name, change)
    assert result.error is code
    assert says in (result.message or "")


def test_a_resource_or_key_named_twice() -> None:
    cluster = cluster_with_topic()
    twice = ResourceChange(TOPIC_RESOURCE, "t", [])
    reply = cluster.controller.alter_configs([twice, twice]).reply
    assert [result.error for result in reply] == [ErrorCode.INVALID_REQUEST] * 2
    result = alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    assert result.error is ErrorCode.INVALID_REQUEST


def test_an_unknown_kind_of_resource() -> None:
    assert alter(cluster_with_topic(), 77, "x", ("a", SET, "b")).error is ErrorCode.INVALID_REQUEST
