"""Answers behind a parked request are bounded by their bytes, per connection and in all."""

from __future__ import annotations

import pytest

from headrace.base.limits import QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX, SLICED_REPLIES_MAX
from headrace.node import waiting
from headrace.node.connection import Connection
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

BROKER = 4


def all_settings(times: int = 3) -> DescribeConfigsRequest:
    """Some 50 kB of answer each time."""
    asked = [DescribeConfigsResource(resource_type=BROKER, resource_name="1") for _ in range(times)]
    return DescribeConfigsRequest(resources=asked, include_synonyms=True, include_documentation=True)


def polling(host: ManualHost, *, wait_ms: int = 60_000) -> Connection:
    connection = host.connect()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[wanted])]
    host.send(connection, FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics), 11)
    return connection


def host_with_topic() -> ManualHost:
    host = ManualHost()
    host.create_topic("t")
    return host


def fill(
    host: ManualHost, connection: Connection, request: DescribeConfigsRequest, seconds: float = 0.1
) -> int:
    """Send as long as a server would read; how many requests."""
    count = 0
    while not connection.is_full and connection.id not in host.closed:
        host.send(connection, request, 4)
        host.advance(seconds)
        count += 1
        assert count < 200
    return count


def test_a_connection_with_too_many_bytes_waiting_is_not_read_from() -> None:
    """99 long answers behind a long poll were gigabytes."""
    host = host_with_topic()
    connection = polling(host)
    count = fill(host, connection, all_settings())
    assert 2 <= count < 90
    assert connection.queued_bytes == host.node.waiting.queued_answers.total_bytes
    assert connection.queued_bytes < 2 * QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX
    host.ask(host.produce_request("t", build_batch([(0, None, b"v", ())])), 9)
    assert len(host.answers[connection.id]) == count + 1
    assert not connection.is_full
    assert connection.queued_bytes == host.node.waiting.queued_answers.total_bytes == 0


def test_what_a_client_leaves_behind_is_forgotten() -> None:
    host = host_with_topic()
    connection = polling(host)
    fill(host, connection, all_settings())
    host.node.disconnected(host.clock.now(), connection)
    assert host.node.waiting.queued_answers.total_bytes == 0


def test_records_that_lie_in_files_do_not_count() -> None:
    host = host_with_topic()
    connection = polling(host)
    host.create_topic("u")
    host.ask(host.produce_request("u", build_batch([(0, None, b"v" * 100_000, ())])), 9)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    for _ in range(50):
        host.send(connection, FetchRequest(topics=[FetchTopic(topic="u", partitions=[wanted])]), 11)
    assert 0 < connection.queued_bytes < 50 * 1_000


def test_when_all_have_too_much_the_one_with_the_most_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUEUED_ANSWER_BYTES_MAX", 3_000_000)
    host = host_with_topic()
    modest = polling(host)
    host.send(modest, all_settings(1), 4)
    host.advance(0.1)
    greedy = [polling(host) for _ in range(8)]
    for connection in greedy:
        fill(host, connection, all_settings())
        assert host.node.waiting.queued_answers.total_bytes <= 3_000_000
    assert host.closed
    assert modest.id not in host.closed
    assert all("bytes of answers wait behind" in reason for reason in host.closed.values())
    host.ask(host.produce_request("t", build_batch([(0, None, b"v", ())])), 9)
    assert len(host.answers[modest.id]) == 2


def test_long_answers_of_one_connection_follow_each_other() -> None:
    """Each may take megabytes before it is whole."""
    host = host_with_topic()
    connection = host.connect()
    long = all_settings(40)
    host.send(connection, long, 4)
    assert connection.is_full
    host.advance(1)
    assert not connection.is_full
    assert host.receive(connection) is not None


def test_only_so_many_long_answers_are_put_together_at_once() -> None:
    host = host_with_topic()
    connections = [host.connect() for _ in range(3 * SLICED_REPLIES_MAX)]
    for connection in connections:
        host.send(connection, all_settings(40), 4)
    assert len(host.node.broker.slicing._running) == SLICED_REPLIES_MAX
    for gone in connections[::5]:
        host.node.disconnected(host.clock.now(), gone)
    host.advance(10)
    for connection in connections:
        assert connection.is_closed or host.receive(connection) is not None
    assert not host.node.broker.slicing._running
    assert not host.node.broker.slicing._queue
