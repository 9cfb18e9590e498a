"""Coordinators are where their partitions are led: a leader epoch opens a shard, and its end closes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.node_groups import SETTINGS, commit, committed, find, join, member_of
from harness.node_transactions import Producer
from harness.single_partition import commit_of
from harness.two_brokers import change_metadata, lead, register
from headrace.machines.metadata.snapshot import partition_record
from headrace.node.coordinators.shard import Shard
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.simulator.manual_host import ManualHost

ONE = {
    **SETTINGS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def host() -> ManualHost:
    host = ManualHost(ONE)
    host.create_topic("t")
    for kind in (0, 1):
        find(host, "g", kind)
    register(host, 2)
    return host


def shard_of(host: ManualHost, topic: str = OFFSETS) -> Shard[Any] | None:
    (coordinator,) = (each for each in host.node.broker.coordinators if each.topic == topic)
    return coordinator.at(0)


def test_a_group_is_where_its_partition_is_led(host: ManualHost) -> None:
    assert commit(host, "g", "t", 7) == 0
    lead(host, OFFSETS, 0, 2)
    assert commit(host, "g", "t", 8) == ErrorCode.NOT_COORDINATOR
    assert find(host, "g").node_id == 2
    assert shard_of(host) is None
    lead(host, OFFSETS, 0, 1)
    host.advance(0.1)
    assert find(host, "g").node_id == 1
    assert committed(host, "g", "t").committed_offset == 7


def test_a_partition_without_a_leader_has_no_coordinator(host: ManualHost) -> None:
    lead(host, OFFSETS, 0, -1, isr=(2,))
    assert find(host, "g").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(host, "g", "t", 8) == ErrorCode.NOT_COORDINATOR


def test_every_epoch_has_a_shard_of_its_own(host: ManualHost) -> None:
    """Also if the leader is the same: what waited for the epoch before is told so."""
    assert commit(host, "g", "t", 7) == 0
    before = shard_of(host)
    lead(host, OFFSETS, 0, 1)
    host.advance(0.1)
    after = shard_of(host)
    assert before is not None
    assert after is not None
    assert after is not before
    assert after.epoch == before.epoch + 1
    assert before.current is None
    assert committed(host, "g", "t").committed_offset == 7


def test_nobody_has_to_ask_for_it(host: ManualHost) -> None:
    """A transaction that was under way must end, whoever coordinates it."""
    assert commit(host, "g", "t", 7) == 0
    lead(host, OFFSETS, 0, 2)
    lead(host, OFFSETS, 0, 1)
    host.advance(0.1)
    shard = shard_of(host)
    assert shard is not None
    assert shard.current is not None


def test_a_snapshot_of_the_metadata_tells_it_too(host: ManualHost) -> None:
    """A broker that was far behind gets the whole state of partitions, in which epochs may be missing."""
    assert commit(host, "g", "t", 7) == 0
    topic = host.node.controller.metadata.image.topics[OFFSETS]
    for leader, epoch in ((2, 5), (1, 9)):
        state = replace(topic.partitions[0], leader=leader, leader_epoch=epoch, isr=(leader,))
        change_metadata(host, partition_record(topic.id, 0, state))
        host.advance(0.1)
        shard = shard_of(host)
        assert (shard is not None) == (leader == 1)
    assert shard is not None
    assert shard.epoch == 9
    assert committed(host, "g", "t").committed_offset == 7


class TestWaiting:
    """Whoever waits in a shard whose epoch ends is answered NOT_COORDINATOR."""

    def test_a_member_that_joins(self, host: ManualHost) -> None:
        member_of(host, "g")
        asked = join(host, "g")
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        connection = host.connect()
        answer = join_again(host, connection, asked.member_id)
        assert answer is None, "the first member has not come back yet"
        lead(host, OFFSETS, 0, 2)
        assert host.receive(connection).error_code == ErrorCode.NOT_COORDINATOR

    def test_a_commit_that_is_not_replicated(self, host: ManualHost) -> None:
        lead(host, OFFSETS, 0, 1, isr=(1, 2))
        host.advance(0.1)
        connection = host.connect()
        host.send(connection, commit_of("g", "t", 8), 9)
        assert host.receive(connection) is None
        lead(host, OFFSETS, 0, 2)
        (topic,) = host.receive(connection).topics
        assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR

    def test_records_of_another_leader_acknowledge_nothing(self, host: ManualHost) -> None:
        """The same offset is committed in a later epoch, in which this broker leads again."""
        lead(host, OFFSETS, 0, 1, isr=(1, 2))
        host.advance(0.1)
        connection = host.connect()
        host.send(connection, commit_of("g", "t", 8), 9)
        lead(host, OFFSETS, 0, 1, isr=(1,))
        (topic,) = host.receive(connection).topics
        assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR

    def test_the_end_of_a_transaction(self, host: ManualHost) -> None:
        producer = Producer(host)
        assert producer.write("t", version=12) == 0
        lead(host, TRANSACTIONS, 0, 1, isr=(1, 2))
        host.advance(0.1)
        connection = host.connect()
        request = EndTxnRequest(
            transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, committed=True
        )
        host.send(connection, request, 5)
        assert host.receive(connection) is None
        lead(host, TRANSACTIONS, 0, 2)
        assert host.receive(connection).error_code == ErrorCode.NOT_COORDINATOR

    def test_what_several_shards_answer(self, host: ManualHost) -> None:
        lead(host, OFFSETS, 0, 1, isr=(1, 2))
        host.advance(0.1)
        connection = host.connect()
        host.send(host.connect(), commit_of("g", "t", 8), 9)
        host.send(connection, ListGroupsRequest(), 4)
        assert host.receive(connection) is None
        lead(host, OFFSETS, 0, 2)
        assert host.receive(connection).error_code == ErrorCode.NOT_COORDINATOR


class TestTheStartOfAnEpoch:
    """Until the high watermark has reached it, nobody knows what the leader before has committed."""

    @pytest.fixture
    def host(self, host: ManualHost) -> ManualHost:
        assert commit(host, "g", "t", 7) == 0
        lead(host, OFFSETS, 0, 2)
        lead(host, OFFSETS, 0, 1)
        partition = host.partitions(OFFSETS)[0]
        assert partition.log is not None
        assert partition.leader is not None
        partition.leader.start_offset = partition.log.log_end_offset + 1
        return host

    def test_nothing_is_decided_before(self, host: ManualHost) -> None:
        host.advance(1)
        assert commit(host, "g", "t", 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def test_it_loads_when_the_start_is_committed(self, host: ManualHost) -> None:
        host.advance(1)
        partition = host.partitions(OFFSETS)[0]
        assert partition.leader is not None
        partition.leader.start_offset -= 1
        host.node.waiting.wake(partition)
        host.node.wake(host.clock.now())
        host.settle()
        host.advance(0.1)
        assert committed(host, "g", "t").committed_offset == 7

    def test_a_leader_that_never_reaches_it_opens_nothing(self, host: ManualHost) -> None:
        host.advance(1)
        lead(host, OFFSETS, 0, 2)
        host.advance(1)
        assert shard_of(host) is None
        assert commit(host, "g", "t", 8) == ErrorCode.NOT_COORDINATOR


def test_a_load_that_fails_after_its_epoch_is_not_tried_again(host: ManualHost) -> None:
    assert commit(host, "g", "t", 7) == 0
    host.runs_jobs = False
    lead_now = host.clock.now()
    lead(host, OFFSETS, 0, 1)
    host.run_jobs()
    host.advance(0.1)  # the shard of the next epoch reads its log
    shard = shard_of(host)
    assert shard is not None
    assert shard.current is None
    assert [job.queue for job in host.jobs] == ["loading"]
    loading = host.jobs.popleft()
    host.runs_jobs = True
    lead(host, OFFSETS, 0, 2)
    host.node.completed(lead_now, loading.ticket, OSError(28, "no space"))
    host.settle()
    host.advance(5)
    assert shard.current is None


def join_again(host: ManualHost, connection: Any, member: str) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"wants")],
    )
    host.send(connection, request, 9)
    return host.receive(connection)
