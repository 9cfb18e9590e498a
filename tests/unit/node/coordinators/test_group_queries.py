"""Groups that are described and deleted: by their coordinator, and for clients that have the right to."""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import Nobody
from harness.single_partition import commit_of, committed_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"offsets.topic.num.partitions": "1"}
NOT_ASKED = -(2**31)
READ, DELETE, DESCRIBE = 3, 6, 8  # bits of Kafka's operations


@pytest.fixture
def host() -> ManualHost:
    """With a group of each kind: one has offsets only, the other one member."""
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert host.ask(commit_of("plain", "t", 5), 9).topics[0].partitions[0].error_code == 0
    joins = ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id="member-1",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert host.ask(joins, 1).error_code == 0
    return host


def classic(host: ManualHost, *groups: str, operations: bool = False) -> list[Any]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
    return list(host.ask(request, 5).groups)


def consumer(host: ManualHost, *groups: str, operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
    return list(host.ask(request, 1).groups)


def deleted(host: ManualHost, *groups: str) -> list[tuple[str, ErrorCode]]:
    answer = host.ask(DeleteGroupsRequest(groups_names=list(groups)), 2)
    return [(one.group_id, ErrorCode(one.error_code)) for one in answer.results]


def test_each_kind_is_described(host: ManualHost) -> None:
    (plain,) = classic(host, "plain")
    assert (plain.group_id, plain.group_state, plain.error_code) == ("plain", "Empty", 0)
    new, plain = consumer(host, "new", "plain")
    assert (new.group_id, new.error_code, [one.member_id for one in new.members]) == ("new", 0, ["member-1"])
    assert (plain.group_id, plain.error_code) == ("plain", ErrorCode.GROUP_ID_NOT_FOUND)


def test_operations_are_told_to_those_who_ask(host: ManualHost) -> None:
    for ask, name in ((classic, "plain"), (consumer, "new")):
        (silent,), (told,) = ask(host, name), ask(host, name, operations=True)
        assert silent.authorized_operations == NOT_ASKED
        assert told.authorized_operations & (1 << READ)
        assert told.authorized_operations & (1 << DELETE)
        assert told.authorized_operations & (1 << DESCRIBE)
    (unknown,) = consumer(host, "nobody", operations=True)
    assert unknown.authorized_operations == NOT_ASKED


def test_a_group_is_deleted_once_with_its_offsets(host: ManualHost) -> None:
    assert deleted(host, "plain", "new", "plain", "nobody") == [
        ("plain", ErrorCode.NONE),
        ("new", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    (group,) = host.ask(committed_of("plain", "t"), 9).groups
    assert group.topics[0].partitions[0].committed_offset == -1
    (plain,) = classic(host, "plain")
    assert plain.group_state == "Dead"


def test_without_the_right_nothing_is_told_or_deleted(host: ManualHost) -> None:
    host.node.access.authorizer = Nobody()
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert [one.error_code for one in classic(host, "plain")] == [refused]
    assert [one.error_code for one in consumer(host, "new")] == [refused]
    assert deleted(host, "plain") == [("plain", refused)]
    host.node.access.authorizer = None
    assert classic(host, "plain")[0].group_state == "Empty"


def test_a_node_that_coordinates_nothing() -> None:
    host = ManualHost(SETTINGS)
    refused = ErrorCode.NOT_COORDINATOR
    assert [one.error_code for one in classic(host, "plain")] == [refused]
    assert [one.error_code for one in consumer(host, "new")] == [refused]
    assert deleted(host, "plain") == [("plain", refused)]
