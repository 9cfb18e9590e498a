"""Coordinators whose partition has too few in-sync replicas: clients are refused, as by Kafka, and nobody
waits without end.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.node_groups import SETTINGS, commit, committed, find, member_of
from harness.node_transactions import Producer
from harness.second_replica import add_second
from harness.single_partition import commit_of, committed_of
from harness.two_brokers import lead, register
from headrace.node.connection import Connection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.simulator.manual_host import ManualHost

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PATIENCE = 5.0  # offsets.commit.timeout.ms


@pytest.fixture
def host() -> ManualHost:
    """Broker 2 is in sync by name, and does not fetch."""
    host = ManualHost(
        {
            **SETTINGS,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "min.insync.replicas": "2",
            "transaction.state.log.min.isr": "2",
            "replica.lag.time.max.ms": "3600000",
        }
    )
    host.create_topic("t")
    for kind in (0, 1):
        find(host, "g", kind)
    register(host, 2)
    assert commit(host, "g", "t", 7) == 0
    return host


def send_commit(host: ManualHost, offset: int) -> Connection:
    connection = host.connect()
    host.send(connection, commit_of("g", "t", offset), 9)
    return connection


def code_of(host: ManualHost, connection: Connection) -> int | None:
    answer = host.receive(connection)
    return None if answer is None else answer.topics[0].partitions[0].error_code


def end_of_log(host: ManualHost) -> int:
    (partition,) = host.partitions(OFFSETS)
    return partition.opened(host.clock.now()).log_end_offset


def test_a_commit_is_refused_before_it_is_written(host: ManualHost) -> None:
    lead(host, OFFSETS, 0, 1, isr=(1,))
    host.advance(0.1)
    before = end_of_log(host)
    for offset in (8, 9):
        connection = send_commit(host, offset)
        assert code_of(host, connection) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert end_of_log(host) == before
    host.advance(60.0)
    assert end_of_log(host) == before
    lead(host, OFFSETS, 0, 1, isr=(1, 2))
    host.advance(2.0)
    assert committed(host, "g", "t").committed_offset == 7


def test_it_is_there_again_when_enough_are_in_sync(host: ManualHost) -> None:
    lead(host, OFFSETS, 0, 1, isr=(1,))
    host.advance(0.1)
    assert commit(host, "g", "t", 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (partition,) = host.partitions(OFFSETS)
    partition.configure(host.clock.now(), partition.config, 1)
    host.advance(1.1)
    assert commit(host, "g", "t", 9) == 0
    assert committed(host, "g", "t").committed_offset == 9


def test_a_commit_waits_for_replicas_as_long_as_the_setting_says(host: ManualHost) -> None:
    lead(host, OFFSETS, 0, 1, isr=(1, 2))
    host.advance(0.1)
    first = send_commit(host, 8)
    host.advance(PATIENCE - 1)
    second = send_commit(host, 9)
    assert code_of(host, first) is None
    host.advance(1.0)
    assert code_of(host, first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code_of(host, second) is None
    host.advance(PATIENCE - 1)
    assert code_of(host, second) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (shard,) = host.node.broker.groups.loaded_shards()
    assert not shard._backlog, "nothing is kept for those who were told"


def ask_all(host: ManualHost, *requests: tuple[Any, int]) -> list[Any]:
    """Each on a connection of its own; None: it waits."""
    connections = [host.connect() for _ in requests]
    for connection, (request, version) in zip(connections, requests, strict=True):
        host.send(connection, request, version)
    return [host.receive(connection) for connection in connections]


def test_so_do_questions_about_what_may_be_lost(host: ManualHost) -> None:
    """And heartbeats, as in Kafka."""
    member, generation = member_of(host, "h")
    lead(host, OFFSETS, 0, 1, isr=(1, 2))
    host.advance(0.1)
    send_commit(host, 8)
    connections = [host.connect() for _ in range(2)]
    host.send(connections[0], HeartbeatRequest(group_id="h", generation_id=generation, member_id=member), 4)
    host.send(connections[1], committed_of("g", "t"), 9)
    assert [host.receive(connection) for connection in connections] == [None] * 2
    host.advance(PATIENCE)
    heartbeat, offsets = (host.receive(connection) for connection in connections)
    assert heartbeat.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert offsets.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("is_fast", [False, True])
def test_questions_about_anything_else_do_not_wait(host: ManualHost, is_fast: bool) -> None:
    assert commit(host, "h", "t", 5) == 0
    connection = host.connect()
    if is_fast:
        for offset in (6, 7):
            host.ask(commit_of("g", "t", offset), 9, connection)
        assert connection.fast_path is not None
        (partition,) = host.partitions(OFFSETS)
        add_second(host, partition)
    else:
        lead(host, OFFSETS, 0, 1, isr=(1, 2))
        host.advance(0.1)
    host.send(connection, commit_of("g", "t", 8), 9)
    assert code_of(host, connection) is None
    own, others, listed, described = ask_all(
        host,
        (committed_of("g", "t"), 9),
        (committed_of("h", "t"), 9),
        (ListGroupsRequest(), 4),
        (DescribeGroupsRequest(groups=["g"]), 5),
    )
    assert own is None
    assert others.groups[0].topics[0].partitions[0].committed_offset == 5
    assert [group.group_id for group in listed.groups] == ["g", "h"]
    assert described.groups[0].group_state == "Empty"


def test_a_group_that_may_be_lost_is_not_told_of(host: ManualHost) -> None:
    lead(host, OFFSETS, 0, 1, isr=(1, 2))
    host.advance(0.1)
    host.send(host.connect(), commit_of("new", "t", 1), 9)
    assert ask_all(
        host,
        (ListGroupsRequest(), 4),
        (DescribeGroupsRequest(groups=["new"]), 5),
        (committed_of("new", "t"), 9),
    ) == [None, None, None]
    (told,) = ask_all(host, (DescribeGroupsRequest(groups=["g"]), 5))
    assert told.groups[0].group_state == "Empty"


def test_what_a_new_machine_has_read_counts_as_committed_only_if_it_is(host: ManualHost) -> None:
    """It does not know of whom the last records are."""
    lead(host, OFFSETS, 0, 1, isr=(1, 2))
    host.advance(0.1)
    send_commit(host, 8)
    (shard,) = host.node.broker.groups.loaded_shards()
    shard.fail(host.clock.now(), OSError("the log could not be written"))
    host.advance(1.1)
    assert shard.current is not None
    assert ask_all(host, (committed_of("h", "t"), 9), (ListGroupsRequest(), 4)) == [None, None]


def test_a_commit_of_the_fast_path_too(host: ManualHost) -> None:
    connection = host.connect()
    for offset in (8, 9):
        assert host.ask(commit_of("g", "t", offset), 9, connection).topics[0].partitions[0].error_code == 0
    assert connection.fast_path is not None
    (partition,) = host.partitions(OFFSETS)
    add_second(host, partition)
    for offset in (10, 11):
        host.send(connection, commit_of("g", "t", offset), 9)
    host.advance(PATIENCE)
    codes = [code_of(host, connection) for _ in range(2)]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    before = end_of_log(host)
    assert before > partition.high_watermark
    partition.min_insync_replicas = 3
    host.send(connection, commit_of("g", "t", 12), 9)
    assert code_of(host, connection) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert end_of_log(host) == before


def test_transactions_are_refused_and_go_on_when_enough_are_in_sync(host: ManualHost) -> None:
    producer = Producer(host, "g")
    assert producer.add("t") == 0
    lead(host, TRANSACTIONS, 0, 1, isr=(1,))
    host.advance(0.3)
    (partition,) = host.partitions(TRANSACTIONS)
    partition.configure(host.clock.now(), partition.config, 2)  # the topic was made for one replica
    assert producer.end(commit=True, version=3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    lead(host, TRANSACTIONS, 0, 1, isr=(1, 2))
    host.advance(0.3)
    assert producer.end(commit=True, version=3) is None, "it waits for broker 2"
