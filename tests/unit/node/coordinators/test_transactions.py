"""Transactions on a host: both protocols from InitProducerId to the markers, and what a restart finishes."""

from __future__ import annotations

import pytest

from harness.authorizers import Nobody
from harness.node_transactions import SETTINGS, Producer, committed_offset, latest, offset_commit
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.storage.errors import DiskFull


@pytest.mark.parametrize("commit", [True, False])
def test_the_first_protocol(commit: bool) -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    assert producer.write("t", version=9) == ErrorCode.INVALID_TXN_STATE, "not added yet"
    assert producer.add("t") == 0
    assert producer.write("t", version=9) == 0
    assert (latest(host, "t", 0), latest(host, "t", 1)) == (1, 0)
    assert producer.state() == "Ongoing"
    assert producer.end(commit=commit, version=3).error_code == 0
    assert (latest(host, "t", 0), latest(host, "t", 1)) == (2, 2)
    assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
    aborted = host.partitions("t")[0].log.aborted_transactions(0, 2)  # type: ignore[union-attr]
    assert [one[0] for one in aborted] == ([] if commit else [producer.id])


def test_the_second_protocol_adds_what_is_written_and_gives_each_transaction_its_epoch() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    for round_ in range(3):
        before = producer.epoch
        assert producer.write("t", version=13) == 0
        assert latest(host, "t", 1) == 2 * round_
        assert producer.end(commit=True, version=5).error_code == 0
        assert producer.epoch == before + 1
        assert latest(host, "t", 1) == 2 * round_ + 2


def test_a_late_write_of_the_transaction_before_is_refused() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    producer.write("t", version=13)
    late_epoch, late_sequence = producer.epoch, producer.sequence
    producer.end(commit=True, version=5)
    producer.epoch, producer.sequence = late_epoch, late_sequence
    assert producer.write("t", version=13) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert latest(host, "t", 0) == 2


def test_a_new_producer_of_the_same_name_fences_the_old_one() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    old = Producer(host)
    assert old.write("t", version=13) == 0
    reply = host.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
    if reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # while what the old one left is ended
        reply = host.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 5)
    assert reply.error_code == 0
    assert latest(host, "t", 1) == 2, "its transaction was aborted"
    assert old.end(commit=True, version=5).error_code == ErrorCode.PRODUCER_FENCED
    assert old.write("t", version=13) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host, timeout_ms=5_000)
    producer.write("t", version=13)
    assert latest(host, "t", 1) == 0
    host.advance(20)
    assert latest(host, "t", 1) == 2
    assert producer.state() == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_count_when_the_transaction_commits(commit: bool, version: int) -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    if version < 5:
        add = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
        )
        assert host.ask(add, 3).error_code == 0
    assert host.ask(offset_commit(producer), version).topics[0].partitions[0].error_code == 0
    assert committed_offset(host, "g").topics == []
    assert producer.end(commit=commit, version=version).error_code == 0
    told = committed_offset(host, "g", stable=True)
    offsets = [one.committed_offset for topic in told.topics for one in topic.partitions]
    assert offsets == ([7] if commit else [])


def test_a_coordinator_killed_before_its_markers_finishes_after_the_restart() -> None:
    host = ManualHost({**SETTINGS, "log.flush.interval.messages": "1"})
    host.create_topic("t")
    producer = Producer(host)
    producer.write("t", version=13)
    host.runs_jobs = False  # the decision to commit is appended, and not a marker more
    connection = host.connect()
    end = EndTxnRequest(
        transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, committed=True
    )
    host.send(connection, end, 5)
    assert host.receive(connection) is None
    assert latest(host, "t", 0) == 1

    after = ManualHost(SETTINGS, disks=host.disks, clock=host.clock)
    after.advance(1)
    assert (latest(after, "t", 0), latest(after, "t", 1)) == (2, 2)
    (listed,) = after.ask(ListTransactionsRequest(), 2).transaction_states
    assert (listed.transactional_id, listed.transaction_state) == ("tx", "CompleteCommit")


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    producer.write("t", version=13)
    producer.host = after = ManualHost(SETTINGS, disks=host.disks, clock=host.clock)
    after.advance(1)
    assert producer.write("t", version=13) == 0
    assert producer.end(commit=True, version=5).error_code == 0
    assert latest(after, "t", 1) == 3


def test_nothing_is_written_before_the_transaction_is_known_to_hold_the_partition() -> None:
    """Else a lost host could keep the batch and forget whose it is: nobody would ever end it."""
    host = ManualHost({**SETTINGS, "log.flush.interval.messages": "1"})
    host.create_topic("t")
    producer = Producer(host)
    partition = host.partitions("t")[0]
    partition.opened(host.clock.now())
    host.runs_jobs = False
    connections = []
    for sequence in range(2):
        batch = build_batch(
            [(host.clock.now().wall_ms, b"k", b"v", ())],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = host.produce_request("t", bytearray(batch))
        request.transactional_id = "tx"
        connections.append(host.connect())
        host.send(connections[-1], request, 12)
    commit = host.connect()
    host.send(commit, offset_commit(producer), 5)
    assert partition.log is not None
    assert partition.log.log_end_offset == 0
    host.run_jobs()
    for number, connection in enumerate(connections):
        told = host.receive(connection).responses[0].partition_responses[0]
        assert (told.error_code, told.base_offset) == (0, number), "in the order they came"
    assert host.receive(commit).topics[0].partitions[0].error_code == 0
    host.runs_jobs = True
    assert producer.end(commit=True, version=5).error_code == 0
    assert latest(host, "t", 1) == 3


def write_marker(
    host: ManualHost, producer: Producer, *, topic: str = "t", coordinator_epoch: int = 0, version: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )
    (told,) = host.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    assert told.producer_id == producer.id
    return told.topics[0].partitions[0].error_code


def test_an_administrator_ends_what_hangs_in_one_partition() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    assert producer.write("t", version=13) == 0
    assert write_marker(host, producer, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH, "needs its own epoch"
    assert write_marker(host, producer, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert latest(host, "t", 1) == 0
    assert write_marker(host, producer, coordinator_epoch=3) == 0
    assert latest(host, "t", 1) == 2
    assert write_marker(host, producer, coordinator_epoch=2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    producer.epoch -= 1
    assert write_marker(host, producer, coordinator_epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert latest(host, "t", 0) == 2


@pytest.mark.parametrize("topic", ["__transaction_state", "__sink_sessions"])
def test_an_end_marker_in_a_coordinators_own_log_means_nothing(topic: str) -> None:
    """Whoever may write markers can write one there: the next start must load the log all the same."""
    host = ManualHost({**SETTINGS, "transaction.state.log.num.partitions": "1"})
    producer = Producer(host)
    for kind in (1, 100):
        host.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["tx"]), 4)
    assert write_marker(host, producer, topic=topic) == 0
    producer.host = ManualHost(host.texts, disks=host.disks, clock=host.clock)
    producer.host.advance(2)
    (partition, *_) = producer.host.partitions(topic)
    shards = [shard for each in producer.host.node.broker.coordinators for shard in each.loaded_shards()]
    assert partition in [shard.partition for shard in shards]
    assert producer.state() == "Empty"


def test_offsets_of_a_fenced_producer_cost_the_other_groups_nothing() -> None:
    """Without the check of each write only the log knows that the producer was fenced."""
    unchecked = {"offsets.topic.num.partitions": "1", "transaction.partition.verification.enable": "false"}
    host = ManualHost({**SETTINGS, **unchecked})
    host.create_topic("t")
    producer = Producer(host)
    for _ in range(2):
        assert host.ask(offset_commit(producer), 5).topics[0].partitions[0].error_code == 0
        assert producer.end(commit=True, version=5).error_code == 0
    producer.epoch -= 2
    (told,) = host.ask(offset_commit(producer), 3).topics
    assert told.partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed_offset(host, "another").error_code == 0
    assert committed_offset(host, "g").topics[0].partitions[0].committed_offset == 7


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, 0), (5, -1)])
def test_offsets_of_nobodys_transaction_are_refused(producer_id: int, epoch: int) -> None:
    """Nothing would ever end it: whoever wants stable offsets would wait for ever."""
    host = ManualHost({**SETTINGS, "transaction.partition.verification.enable": "false"})
    host.create_topic("t")
    producer = Producer(host)
    producer.id, producer.epoch = producer_id, epoch
    (told,) = host.ask(offset_commit(producer), 3).topics
    assert told.partitions[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert committed_offset(host, "g", stable=True).topics == []


def test_only_who_may_change_the_cluster_writes_markers() -> None:
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    assert producer.write("t", version=13) == 0
    allowed, host.node.access.authorizer = host.node.access.authorizer, Nobody()
    assert write_marker(host, producer) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    host.node.access.authorizer = allowed
    assert latest(host, "t", 1) == 0


def test_a_group_that_a_transaction_only_announced_is_no_reason_to_wait() -> None:
    """The end marker lies in the group's partition, where nothing else is."""
    host = ManualHost(SETTINGS)
    host.create_topic("t")
    producer = Producer(host)
    request = AddOffsetsToTxnRequest(
        transactional_id="tx", producer_id=producer.id, producer_epoch=producer.epoch, group_id="announced"
    )
    assert host.ask(request, 3).error_code == 0
    assert producer.end(commit=False, version=4).error_code == 0
    host.runs_jobs = False  # whoever has to read a log waits from here on
    assert host.ask(ListGroupsRequest(), 5).error_code == 0


def test_a_coordinator_made_again_waits_for_the_markers_that_were_written_before() -> None:
    """A machine that goes down must not keep the end of the transaction and lose a marker."""
    host = ManualHost({**SETTINGS, "transaction.state.log.num.partitions": "1"})
    host.create_topic("t", flush_messages="1")
    producer = Producer(host)
    assert producer.write("t", version=13) == 0
    host.runs_jobs = False
    assert producer.end(commit=True, version=5).error_code == 0
    assert producer.state() == "PrepareCommit"
    shard = host.node.broker.transactions.at(0)
    assert shard is not None
    shard.fail(host.clock.now(), DiskFull("no space"))
    host.advance(2)
    while loading := [job for job in host.jobs if job.queue == "loading"]:
        host.jobs.remove(loading[0])
        host.jobs.appendleft(loading[0])
        host.run_job()
        host.settle()
        host.advance(0.1)
    assert producer.state() == "PrepareCommit"
    host.run_jobs()
    assert producer.state() == "CompleteCommit"
