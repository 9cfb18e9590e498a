"""Requests about a group's offsets that name a topic which the client may not see, or nobody knows: each
such topic is answered with its error, and the others are served.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from harness.authorizers import ByName
from harness.single_partition import commit_of, committed_of
from headrace.node.authorization import Operation, Resource
from headrace.node.connection import Connection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"offsets.topic.num.partitions": "1"}
SECRET = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


class AllButOne(ByName):
    """Allows everything, except to touch one topic."""

    def allows(self, connection: Connection, operation: Operation, resource: Resource, name: str) -> bool:
        return (resource, name) != (Resource.TOPIC, "secret")


@pytest.fixture
def host() -> ManualHost:
    host = ManualHost(SETTINGS)
    for name in ("open", "secret"):
        host.create_topic(name)
    host.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    for name, offset in (("open", 5), ("secret", 6)):
        (topic,) = host.ask(commit_of("g", name, offset), 9).topics
        assert topic.partitions[0].error_code == 0
    host.node.access.authorizer = AllButOne()
    return host


def errors(topics: Iterable[object]) -> dict[str, ErrorCode]:
    return {topic.name: ErrorCode(topic.partitions[0].error_code) for topic in topics}  # type: ignore[attr-defined]


def commit_topics(*names: str) -> list[OffsetCommitRequestTopic]:
    return [topic for name in names for topic in commit_of("g", name, 7).topics]


def fetched(host: ManualHost, topics: list[str] | None) -> dict[str, tuple[ErrorCode, int]]:
    wanted = None
    if topics is not None:
        wanted = [each for name in topics for each in committed_of("g", name).groups[0].topics or ()]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
    (group,) = host.ask(request, 9).groups
    assert group.error_code == 0
    return {
        topic.name: (ErrorCode(topic.partitions[0].error_code), topic.partitions[0].committed_offset)
        for topic in group.topics
    }


def test_offsets_are_read_of_the_topics_that_may_be_seen(host: ManualHost) -> None:
    assert fetched(host, ["secret", "open"]) == {"secret": SECRET, "open": (ErrorCode.NONE, 5)}
    assert fetched(host, None) == {"open": (ErrorCode.NONE, 5)}, "all: those that may be seen"


def test_offsets_are_committed_of_the_topics_that_may_be_read(host: ManualHost) -> None:
    request = OffsetCommitRequest(group_id="g", topics=commit_topics("secret", "open", "unknown"))
    assert errors(host.ask(request, 9).topics) == {
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "open": ErrorCode.NONE,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    host.node.access.authorizer = None
    assert fetched(host, ["secret", "open"]) == {"secret": (ErrorCode.NONE, 6), "open": (ErrorCode.NONE, 7)}


def test_offsets_are_deleted_of_the_topics_that_may_be_read(host: ManualHost) -> None:
    names = ("secret", "open", "unknown")
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in names]
    answer = host.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert answer.error_code == 0
    assert errors(answer.topics) == {
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "open": ErrorCode.NONE,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    host.node.access.authorizer = None
    assert fetched(host, ["secret", "open"]) == {"secret": (ErrorCode.NONE, 6), "open": (ErrorCode.NONE, -1)}


@pytest.mark.parametrize("version", [0, 5, 6])
def test_a_group_that_nobody_knows_is_dead(host: ManualHost, version: int) -> None:
    """Since version 6 (KIP-1043) with an error."""
    (group,) = host.ask(DescribeGroupsRequest(groups=["nobody"]), version).groups
    error = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (group.group_id, group.group_state, group.error_code) == ("nobody", "Dead", error)
