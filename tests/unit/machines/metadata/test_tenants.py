"""Tenants: what their partitions are limited by when topics and partitions are created."""

from __future__ import annotations

import pytest

from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.controller.create_partitions import MorePartitions
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.tenants import parse_tenants, tenant_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import ConfigRecord
from unit.machines.metadata.cluster import Cluster

LIMITED, GRANTED = ErrorCode.POLICY_VIOLATION, ErrorCode.NONE


def test_entries() -> None:
    assert parse_tenants(["blue:100", " green", "red:0"]) == {"blue": 100, "green": None, "red": 0}
    assert parse_tenants(["blue:100", "blue:50"]) == {"blue": 50}, "the lower one counts"
    assert parse_tenants(["blue", "blue:50"]) == parse_tenants(["blue:50", "blue"]) == {"blue": 50}
    for wrong in (
        "",
        "a.b:1",
        "blue:",
        "blue:-1",
        "blue:x",
        "blue:99999999999",
        "bl ue",
        "bl_ue",
        "blue:1:2",
    ):
        with pytest.raises(InvalidConfig):
            parse_tenants([wrong])


def test_names() -> None:
    tenants = {"blue": 1}
    assert tenant_of("blue.orders", tenants) == "blue"
    assert tenant_of("blue.a.b", tenants) == "blue"
    assert [tenant_of(name, tenants) for name in ("blue", "bluer.x", "x.blue.y", ".blue")] == [None] * 4


def cluster_with(tenants: str) -> Cluster:
    cluster = Cluster(3)
    cluster.image.replay(
        ConfigRecord(resource_type=4, resource_name="", name="headrace.tenants", value=tenants)
    )
    return cluster


def created(cluster: Cluster, *topics: tuple[str, int]) -> list[ErrorCode]:
    wanted = [NewTopic(name, partitions, 1) for name, partitions in topics]
    return [one.error for one in cluster.apply(cluster.controller.create_topics(wanted))]


def test_topics_beyond_the_limit_are_refused() -> None:
    cluster = cluster_with("blue:10,green")
    assert created(cluster, ("blue.a", 6)) == [GRANTED]
    assert created(cluster, ("blue.b", 5), ("other", 50), ("green.a", 50), ("blue", 50)) == [
        LIMITED,
        GRANTED,
        GRANTED,
        GRANTED,
    ]
    assert created(cluster, ("blue.c", 3), ("blue.d", 1), ("blue.e", 1)) == [GRANTED, GRANTED, LIMITED], (
        "within one request"
    )
    (refused,) = cluster.apply(cluster.controller.create_topics([NewTopic("blue.f", 1, 1)]))
    assert refused.message == "Tenant blue may have 10 partitions and has 10: 1 more are too many."


def test_more_partitions_of_a_topic_count_too() -> None:
    cluster = cluster_with("blue:4")
    created(cluster, ("blue.a", 2))

    def grown(count: int) -> ErrorCode:
        (one,) = cluster.apply(cluster.controller.create_partitions([MorePartitions("blue.a", count)]))
        return one.error

    assert grown(5) == LIMITED
    assert grown(4) == GRANTED
    assert grown(5) == LIMITED


def test_a_limit_that_comes_too_late_takes_nothing_away() -> None:
    cluster = Cluster(3)
    created(cluster, ("blue.a", 6))
    cluster.image.replay(
        ConfigRecord(resource_type=4, resource_name="", name="headrace.tenants", value="blue:3")
    )
    assert created(cluster, ("blue.b", 1)) == [LIMITED]
    assert list(cluster.image.topics) == ["blue.a"]
