"""Transactions on a desk: both protocols from InitProducerId to the markers, and what a restart finishes."""

from __future__ import annotations

from typing import Any

import pytest

from harness.authorizers import Nobody
from harness.desk import Desk
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.records.builder import build_batch

SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
LATEST = -1


class Producer:
    """A transactional producer with its requests spelled out."""

    def __init__(self, desk: Desk, name: str = "tx", timeout_ms: int = 60_000) -> None:
        self.desk = desk
        self.name = name
        self.sequence = 0
        for kind in (0, 1):
            desk.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
        reply = desk.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 5)
        assert reply.error_code == 0, reply
        self.id, self.epoch = reply.producer_id, reply.producer_epoch

    def add(self, topic: str) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        (told,) = self.desk.ask(request, 3).results_by_topic_v3_and_below
        return told.results_by_partition[0].partition_error_code

    def write(self, topic: str, *, version: int) -> int:
        batch = build_batch(
            [(self.desk.clock.now().wall_ms, b"k", b"v", ())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = self.desk.produce_request(topic, bytearray(batch))
        request.transactional_id = self.name
        if version >= 13:
            request.topic_data[0].topic_id = self.desk.node.controller.metadata.image.topics[topic].id
            request.topic_data[0].name = ""
        (told,) = self.desk.ask(request, version).responses
        code = told.partition_responses[0].error_code
        self.sequence += not code
        return code

    def end(self, *, commit: bool, version: int) -> Any:
        reply = self.desk.ask(
            EndTxnRequest(
                transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
            ),
            version,
        )
        if version >= 5 and not reply.error_code:
            self.id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        return reply

    def state(self) -> str:
        (state,) = self.desk.ask(
            DescribeTransactionsRequest(transactional_ids=[self.name]), 0
        ).transaction_states
        return state.transaction_state


def latest(desk: Desk, topic: str, isolation: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
            )
        ],
    )
    return desk.ask(request, 7).topics[0].partitions[0].offset


def committed_offset(desk: Desk, group: str, *, stable: bool = False) -> Any:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable
    )
    (answer,) = desk.ask(request, 9).groups
    return answer


def offset_commit(producer: Producer) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata=""
                    )
                ],
            )
        ],
    )


@pytest.mark.parametrize("commit", [True, False])
def test_the_first_protocol(commit: bool) -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    assert producer.write("t", version=9) == ErrorCode.INVALID_TXN_STATE, "not added yet"
    assert producer.add("t") == 0
    assert producer.write("t", version=9) == 0
    assert (latest(desk, "t", 0), latest(desk, "t", 1)) == (1, 0)
    assert producer.state() == "Ongoing"
    assert producer.end(commit=commit, version=3).error_code == 0
    assert (latest(desk, "t", 0), latest(desk, "t", 1)) == (2, 2)
    assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
    aborted = desk.node.broker.partitions.of_name("t")[0].log.aborted_transactions(0, 2)  # type: ignore[index,union-attr]
    assert [one[0] for one in aborted] == ([] if commit else [producer.id])


def test_the_second_protocol_adds_what_is_written_and_gives_each_transaction_its_epoch() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    for round_ in range(3):
        before = producer.epoch
        assert producer.write("t", version=13) == 0
        assert latest(desk, "t", 1) == 2 * round_
        assert producer.end(commit=True, version=5).error_code == 0
        assert producer.epoch == before + 1
        assert latest(desk, "t", 1) == 2 * round_ + 2


def test_a_late_write_of_the_transaction_before_is_refused() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    producer.write("t", version=13)
    late_epoch, late_sequence = producer.epoch, producer.sequence
    producer.end(commit=True, version=5)
    producer.epoch, producer.sequence = late_epoch, late_sequence
    assert producer.write("t", version=13) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert latest(desk, "t", 0) == 2


def test_a_new_producer_of_the_same_name_fences_the_old_one() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    old = Producer(desk)
    assert old.write("t", version=13) == 0
    reply = desk.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
    if reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # while what the old one left is ended
        reply = desk.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
    assert reply.error_code == 0
    assert latest(desk, "t", 1) == 2, "its transaction was aborted"
    assert old.end(commit=True, version=5).error_code == ErrorCode.PRODUCER_FENCED
    assert old.write("t", version=13) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk, timeout_ms=5_000)
    producer.write("t", version=13)
    assert latest(desk, "t", 1) == 0
    desk.advance(20)
    assert latest(desk, "t", 1) == 2
    assert producer.state() == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_count_when_the_transaction_commits(commit: bool, version: int) -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    if version < 5:
        add = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
        )
        assert desk.ask(add, 3).error_code == 0
    assert desk.ask(offset_commit(producer), version).topics[0].partitions[0].error_code == 0
    assert committed_offset(desk, "g").topics == []
    assert producer.end(commit=commit, version=version).error_code == 0
    told = committed_offset(desk, "g", stable=True)
    offsets = [one.committed_offset for topic in told.topics for one in topic.partitions]
    assert offsets == ([7] if commit else [])


def test_a_coordinator_killed_before_its_markers_finishes_after_the_restart() -> None:
    desk = Desk({**SETTINGS, "log.flush.interval.messages": "1"})
    desk.create_topic("t")
    producer = Producer(desk)
    producer.write("t", version=13)
    desk.runs_jobs = False  # the decision to commit is appended, and not a marker more
    connection = desk.connect()
    end = EndTxnRequest(
        transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, committed=True
    )
    desk.send(connection, end, 5)
    assert desk.receive(connection) is None
    assert latest(desk, "t", 0) == 1

    after = Desk(SETTINGS, disks=desk.disks, clock=desk.clock)
    after.advance(1)
    assert (latest(after, "t", 0), latest(after, "t", 1)) == (2, 2)
    (listed,) = after.ask(ListTransactionsRequest(), 2).transaction_states
    assert (listed.transactional_id, listed.transaction_state) == ("tx", "CompleteCommit")


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    producer.write("t", version=13)
    producer.desk = after = Desk(SETTINGS, disks=desk.disks, clock=desk.clock)
    after.advance(1)
    assert producer.write("t", version=13) == 0
    assert producer.end(commit=True, version=5).error_code == 0
    assert latest(after, "t", 1) == 3


def test_nothing_is_written_before_the_transaction_is_known_to_hold_the_partition() -> None:
    """Else a lost machine could keep the batch and forget whose it is: nobody would ever end it."""
    desk = Desk({**SETTINGS, "log.flush.interval.messages": "1"})
    desk.create_topic("t")
    producer = Producer(desk)
    partition = desk.node.broker.partitions.of_name("t")[0]  # type: ignore[index]
    partition.opened(desk.clock.now())
    desk.runs_jobs = False
    connections = []
    for sequence in range(2):
        batch = build_batch(
            [(desk.clock.now().wall_ms, b"k", b"v", ())],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = desk.produce_request("t", bytearray(batch))
        request.transactional_id = "tx"
        connections.append(desk.connect())
        desk.send(connections[-1], request, 12)
    commit = desk.connect()
    desk.send(commit, offset_commit(producer), 5)
    assert partition.log is not None
    assert partition.log.log_end_offset == 0
    desk.run_jobs()
    for number, connection in enumerate(connections):
        told = desk.receive(connection).responses[0].partition_responses[0]
        assert (told.error_code, told.base_offset) == (0, number), "in the order they came"
    assert desk.receive(commit).topics[0].partitions[0].error_code == 0
    desk.runs_jobs = True
    assert producer.end(commit=True, version=5).error_code == 0
    assert latest(desk, "t", 1) == 3


def write_marker(
    desk: Desk, producer: Producer, *, topic: str = "t", coordinator_epoch: int = 0, version: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )
    (told,) = desk.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    assert told.producer_id == producer.id
    return told.topics[0].partitions[0].error_code


def test_an_administrator_ends_what_hangs_in_one_partition() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    assert producer.write("t", version=13) == 0
    assert write_marker(desk, producer, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH, "needs its own epoch"
    assert write_marker(desk, producer, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert latest(desk, "t", 1) == 0
    assert write_marker(desk, producer, coordinator_epoch=3) == 0
    assert latest(desk, "t", 1) == 2
    assert write_marker(desk, producer, coordinator_epoch=2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    producer.epoch -= 1
    assert write_marker(desk, producer, coordinator_epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert latest(desk, "t", 0) == 2


def test_only_who_may_change_the_cluster_writes_markers() -> None:
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    assert producer.write("t", version=13) == 0
    allowed, desk.node.access.authorizer = desk.node.access.authorizer, Nobody()
    assert write_marker(desk, producer) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    desk.node.access.authorizer = allowed
    assert latest(desk, "t", 1) == 0


def test_a_group_that_a_transaction_only_announced_is_no_reason_to_wait() -> None:
    """The end marker lies in the group's partition, where nothing else is."""
    desk = Desk(SETTINGS)
    desk.create_topic("t")
    producer = Producer(desk)
    request = AddOffsetsToTxnRequest(
        transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, group_id="announced"
    )
    assert desk.ask(request, 3).error_code == 0
    assert producer.end(commit=False, version=4).error_code == 0
    desk.runs_jobs = False  # whoever has to read a log waits from here on
    assert desk.ask(ListGroupsRequest(), 5).error_code == 0
