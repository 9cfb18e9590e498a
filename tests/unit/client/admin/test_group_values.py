"""Groups as brokers tell them, old and new, and transactions that hang."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.admin.groups import classic_group, modern_group
from headrace.client.admin.transactions import OpenTransaction, hanging
from headrace.client.cluster import TopicPartition
from headrace.protocol.messages import consumer_group_describe as modern
from headrace.protocol.messages import describe_groups as classic
from headrace.protocol.messages.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from headrace.protocol.versioned import encode_versioned


def told(protocol_type: str, assignment: bytes) -> classic.DescribedGroup:
    member = classic.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/10.0.0.1", member_assignment=assignment
    )
    return classic.DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=[member],
    )


class TestClassic:
    @pytest.mark.parametrize("version", range(4))
    def test_what_consumers_agreed_on_is_read(self, version: int) -> None:
        topics = [AssignedTopic(topic="b", partitions=[1]), AssignedTopic(topic="a", partitions=[2, 0])]
        data = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), version)
        group = classic_group(told("consumer", data), 7)
        assert (group.type, group.state, group.assignor, group.coordinator) == (
            "classic",
            "Stable",
            "range",
            7,
        )
        (member,) = group.members
        assert member.host == "10.0.0.1"
        assert member.assignment == [
            TopicPartition("a", 0),
            TopicPartition("a", 2),
            TopicPartition("b", 1),
        ]

    @pytest.mark.parametrize(
        ("protocol_type", "data", "assignment"),
        [
            ("connect", b"whatever", None),
            ("consumer", b"", []),
            ("consumer", b"\x00\x01\xff", None),
            ("consumer", b"\xff\xff", None),
        ],
    )
    def test_bytes_that_are_none_of_ours(self, protocol_type: str, data: bytes, assignment: Any) -> None:
        (member,) = classic_group(told(protocol_type, data), 1).members
        assert member.assignment == assignment

    def test_who_is_active(self) -> None:
        group = classic_group(told("consumer", b""), 1)
        assert group.is_active
        assert not group._replace(members=[], state="Empty").is_active
        assert group._replace(members=[], state="PreparingRebalance").is_active


def test_a_member_of_the_new_protocol_on_its_way() -> None:
    def assignment(*partitions: int) -> modern.Assignment:
        topic = modern.TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=list(partitions))
        return modern.Assignment(topic_partitions=[topic])

    member = modern.Member(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        assignment=assignment(1, 0),
        target_assignment=assignment(0),
    )
    group = modern_group(
        modern.DescribedGroup(
            group_id="g", group_state="Reconciling", group_epoch=4, assignor_name="uniform", members=[member]
        ),
        1,
    )
    assert (group.type, group.protocol_type, group.epoch) == ("consumer", "consumer", 4)
    assert group.members[0].assignment == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert group.members[0].target == [TopicPartition("t", 0)]


def test_a_transaction_hangs_where_its_coordinator_does_not_know_of_it() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)

    def open_at(at: TopicPartition, producer_id: int) -> OpenTransaction:
        return OpenTransaction(at, producer_id, 0, 0, 5, 1000)

    known_here, known_elsewhere, unknown = open_at(here, 1), open_at(there, 1), open_at(here, 2)
    assert hanging([known_here, known_elsewhere, unknown], {1: {here}}) == [known_elsewhere, unknown]
