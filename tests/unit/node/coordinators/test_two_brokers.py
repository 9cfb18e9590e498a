"""Transactions whose coordinator is on one broker, and whose partitions and groups are on another."""

from __future__ import annotations

from typing import Any

import pytest

from harness.node_groups import find
from harness.node_transactions import Producer, committed_offset, latest, offset_commit
from harness.two_brokers import TwoBrokers, lead
from headrace.node.coordinators.markers import COMMIT_TIMEOUT_MS, RETRY_MS
from headrace.node.peers import Unanswered
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
OFFSETS, TRANSACTIONS, SINKS = "__consumer_offsets", "__transaction_state", "__sink_sessions"
READ_COMMITTED = 1
SINK = 100
LATER_S = RETRY_MS / 1000


class Scene(TwoBrokers):
    """The first broker coordinates transactions and sinks, the second leads the topic and the groups."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.create_topic("t")
        for host in self.hosts.values():
            for kind in (0, 1, SINK):
                find(host, "tx", kind)
        self.meet()
        for topic in (TRANSACTIONS, SINKS):
            self.lead(topic, 1)
        for topic in ("t", OFFSETS):
            self.lead(topic, 2)
        self.advance(0.3)
        self.producer = Producer(self.first)

    def batch(self, producer_id: int, epoch: int, sequence: int = 0) -> bytearray:
        rows = [(self.second.clock.now().wall_ms, b"k", b"v", ())]
        return bytearray(
            build_batch(
                rows,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def send(self, *, version: int = 12) -> Written:
        """The producer's next batch, to the leader of the topic."""
        producer = self.producer
        request = self.second.produce_request(
            "t", self.batch(producer.id, producer.epoch, producer.sequence), timeout_ms=60_000
        )
        request.transactional_id = producer.name
        written = Written(self.second, request, version)
        producer.sequence += 1
        return written

    @property
    def stable_end(self) -> int:
        return latest(self.second, "t", READ_COMMITTED)


class Written:
    def __init__(self, host: ManualHost, request: Any, version: int) -> None:
        self._host = host
        self._connection = host.connect()
        host.send(self._connection, request, version)

    @property
    def code(self) -> int | None:
        """None: not answered yet."""
        answer = self._host.receive(self._connection)
        if answer is None:
            return None
        code: int = answer.responses[0].partition_responses[0].error_code
        return code


@pytest.fixture
def scene() -> Scene:
    return Scene()


class TestAWrite:
    def test_it_waits_for_the_word_of_the_coordinator(self, scene: Scene) -> None:
        written = scene.send()
        assert written.code is None
        (asked,) = scene.exchange()
        assert isinstance(asked, AddPartitionsToTxnRequest)
        (transaction,) = asked.transactions
        assert (transaction.transactional_id, transaction.verify_only) == ("tx", False)
        assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("t", [0])]
        assert written.code == 0
        assert scene.producer.state() == "Ongoing"

    def test_one_word_is_enough_for_a_transaction(self, scene: Scene) -> None:
        first, second = scene.send(), scene.send()
        assert len(scene.exchange()) == 1
        assert (first.code, second.code, scene.send().code) == (0, 0, 0)
        assert scene.exchange() == []

    def test_one_request_asks_about_all_partitions_of_a_call(self) -> None:
        scene = Scene()
        request = scene.second.produce_request("t", scene.batch(scene.producer.id, scene.producer.epoch))
        request.topic_data.append(request.topic_data[0])  # the same partition, which is one more batch
        request.transactional_id = "tx"
        scene.second.send(scene.second.connect(), request, 12)
        (asked,) = scene.exchange()
        assert isinstance(asked, AddPartitionsToTxnRequest)
        assert [topic.partitions for topic in asked.transactions[0].topics] == [[0]]

    def test_the_first_protocol_verifies(self, scene: Scene) -> None:
        late = scene.send(version=11)
        (asked,) = scene.exchange()
        assert isinstance(asked, AddPartitionsToTxnRequest)
        assert asked.transactions[0].verify_only
        assert late.code == ErrorCode.TRANSACTION_ABORTABLE
        assert scene.producer.add("t") == 0
        scene.producer.sequence = 0
        written = scene.send(version=11)
        scene.exchange()
        assert written.code == 0

    @pytest.mark.parametrize("why", list(Unanswered))
    def test_without_an_answer_the_producer_tries_again(self, scene: Scene, why: Unanswered) -> None:
        written = scene.send()
        scene.lose(why)
        assert written.code == ErrorCode.NOT_ENOUGH_REPLICAS
        scene.producer.sequence = 0
        again = scene.send()
        scene.exchange()
        assert again.code == 0

    def test_a_coordinator_that_has_moved_is_asked_where_it_is(self, scene: Scene) -> None:
        written = scene.send()
        lead(scene.first, TRANSACTIONS, 0, 2)
        scene.exchange()
        assert written.code == ErrorCode.NOT_ENOUGH_REPLICAS

    def test_a_fenced_producer_is_told(self, scene: Scene) -> None:
        producer = scene.producer
        Producer(scene.first)
        scene.producer = producer
        written = scene.send()
        scene.exchange()
        assert written.code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_word_that_a_marker_has_overtaken_is_void(self, scene: Scene) -> None:
        """By the first protocol one epoch has many transactions: what was granted for the one before would
        open one that nobody ends.
        """
        assert scene.producer.add("t") == 0
        late = scene.send(version=11)
        ((sender, sent),) = scene.under_way()
        assert scene.producer.end(commit=True, version=4).error_code == 0
        scene.deliver(sender, sent)  # the coordinator answers that the transaction is ending
        asked = scene.exchange()
        assert [type(each) for each in asked] == [WriteTxnMarkersRequest, AddPartitionsToTxnRequest]
        assert late.code == ErrorCode.TRANSACTION_ABORTABLE
        assert scene.stable_end == 1  # the marker

    def test_a_word_that_was_given_before_the_end(self, scene: Scene) -> None:
        assert scene.producer.add("t") == 0
        late = scene.send(version=11)
        ((sender, sent),) = scene.under_way()
        scene.deliver(sender, sent)  # granted, and the answer is on its way
        assert scene.producer.end(commit=True, version=4).error_code == 0
        markers = list(scene.under_way())
        for number, marker in markers:
            scene.deliver(number, marker)
        asked = scene.exchange()
        assert [type(each) for each in asked] == [AddPartitionsToTxnRequest], "it is asked again"
        assert late.code == ErrorCode.TRANSACTION_ABORTABLE
        assert scene.stable_end == latest(scene.second, "t", 0)

    def test_a_batch_that_times_out_is_forgotten(self, scene: Scene) -> None:
        producer = scene.producer
        request = scene.second.produce_request("t", scene.batch(producer.id, producer.epoch), timeout_ms=100)
        request.transactional_id = "tx"
        written = Written(scene.second, request, 12)
        scene.second.advance(0.2)
        assert written.code == ErrorCode.REQUEST_TIMED_OUT
        scene.exchange()
        assert latest(scene.second, "t", 0) == 0
        assert scene.second.node.broker.permits._watched == {}


class TestTheEnd:
    def test_markers_are_written_by_the_leader(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        assert scene.stable_end == 0
        assert scene.producer.end(commit=True, version=5).error_code == 0
        assert scene.producer.state() == "PrepareCommit"
        (asked,) = scene.exchange()
        assert isinstance(asked, WriteTxnMarkersRequest)
        assert asked.markers[0].transaction_version == 2
        assert scene.producer.state() == "CompleteCommit"
        assert scene.stable_end == 2

    def test_they_are_sent_until_they_are_written(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        scene.producer.end(commit=True, version=5)
        for why in Unanswered:
            assert len(scene.lose(why)) == 1
            assert scene.producer.state() == "PrepareCommit"
            scene.advance(LATER_S)
        scene.exchange()
        assert scene.producer.state() == "CompleteCommit"
        assert scene.stable_end == 2

    def test_an_answer_that_is_lost_costs_no_second_marker(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        scene.producer.end(commit=True, version=5)
        ((sender, sent),) = scene.under_way()
        scene.deliver(sender, sent)
        scene.answer(sender, sent.ticket, Unanswered.LOST)
        scene.advance(LATER_S)
        scene.exchange()
        assert scene.producer.state() == "CompleteCommit"
        assert scene.stable_end == 2

    def test_it_is_not_complete_before_the_marker_is_committed(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        lead(scene.second, "t", 0, 2, isr=(1, 2))
        scene.producer.end(commit=True, version=5)
        scene.exchange()
        assert scene.producer.state() == "PrepareCommit"
        scene.second.advance(COMMIT_TIMEOUT_MS / 1000)
        scene.exchange()  # not committed in time
        assert scene.producer.state() == "PrepareCommit"
        scene.advance(LATER_S)
        scene.exchange()
        assert scene.producer.state() == "PrepareCommit", "the marker is there, and not committed"
        lead(scene.second, "t", 0, 2)
        scene.exchange()
        scene.advance(LATER_S)
        scene.exchange()
        assert scene.producer.state() == "CompleteCommit"

    def test_a_leader_that_has_changed_is_asked_no_more(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        scene.producer.end(commit=True, version=5)
        lead(scene.second, "t", 0, 1)
        assert len(scene.exchange()) == 1
        assert scene.producer.state() == "PrepareCommit"
        lead(scene.first, "t", 0, 1)
        scene.advance(LATER_S)
        assert scene.exchange() == []
        assert scene.producer.state() == "CompleteCommit"

    def test_a_partition_without_a_leader_is_awaited(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        lead(scene.first, "t", 0, -1, isr=(2,))
        scene.producer.end(commit=True, version=5)
        assert scene.exchange() == []
        lead(scene.first, "t", 0, 2)
        scene.advance(LATER_S)
        assert len(scene.exchange()) == 1
        assert scene.producer.state() == "CompleteCommit"

    def test_a_coordinator_that_has_moved_sends_nothing(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        scene.producer.end(commit=True, version=5)
        scene.lose()
        scene.lead(TRANSACTIONS, 2)
        scene.advance(2 * LATER_S)
        assert scene.exchange() == []

    def test_a_coordinator_that_comes_back_sends_what_is_missing(self, scene: Scene) -> None:
        scene.send()
        scene.exchange()
        scene.producer.end(commit=True, version=5)
        scene.lose()
        lead(scene.first, TRANSACTIONS, 0, 1)
        scene.advance(LATER_S)
        scene.exchange()
        assert scene.producer.state() == "CompleteCommit"

    def test_a_marker_that_comes_late_does_not_end_the_next_transaction(self, scene: Scene) -> None:
        """By the first protocol both have the same epoch. The coordinator had given up the connection."""
        assert scene.producer.add("t") == 0
        scene.send(version=11)
        scene.exchange()
        scene.producer.end(commit=True, version=4)
        ((sender, late),) = scene.under_way()
        scene.answer(sender, late.ticket, Unanswered.SILENT)
        scene.advance(LATER_S)
        scene.exchange()
        assert scene.producer.state() == "CompleteCommit"
        assert scene.producer.add("t") == 0
        written = scene.send(version=11)
        scene.exchange()
        assert written.code == 0
        stable_end = scene.stable_end
        scene.deliver(sender, late)
        assert scene.stable_end == stable_end, "the second transaction is still open"

    def test_a_restarted_coordinator_counts_from_one_again(self, scene: Scene) -> None:
        assert scene.producer.add("t") == 0
        scene.send(version=11)
        scene.exchange()
        scene.producer.end(commit=True, version=4)
        scene.exchange()
        lead(scene.first, TRANSACTIONS, 0, 1)
        scene.advance(LATER_S)
        scene.first.node.peers._last_ticket = 0
        assert scene.producer.add("t") == 0
        scene.send(version=11)
        scene.exchange()
        scene.producer.end(commit=True, version=4)
        scene.exchange()
        assert scene.producer.state() == "CompleteCommit"


class TestAReceiver:
    @staticmethod
    def write(scene: Scene, *, epoch: int, coordinator_epoch: int) -> int:
        marker = WritableTxnMarker(
            producer_id=scene.producer.id,
            producer_epoch=epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=1,
        )
        (told,) = scene.second.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
        code: int = told.topics[0].partitions[0].error_code
        return code

    def test_it_must_lead(self, scene: Scene) -> None:
        lead(scene.second, "t", 0, 1)
        assert self.write(scene, epoch=0, coordinator_epoch=5) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_it_refuses_an_older_coordinator(self, scene: Scene) -> None:
        assert self.write(scene, epoch=0, coordinator_epoch=5) == 0
        assert self.write(scene, epoch=0, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_it_refuses_an_older_producer(self, scene: Scene) -> None:
        assert self.write(scene, epoch=3, coordinator_epoch=5) == 0
        assert self.write(scene, epoch=2, coordinator_epoch=5) == ErrorCode.INVALID_PRODUCER_EPOCH


class TestOffsets:
    """The group's coordinator asks the transaction's before it takes offsets."""

    @pytest.mark.parametrize("version", [4, 5])
    def test_they_are_added_or_verified(self, scene: Scene, version: int) -> None:
        connection = scene.second.connect()
        scene.second.send(connection, offset_commit(scene.producer), version)
        assert scene.second.receive(connection) is None
        (asked,) = scene.exchange()
        assert isinstance(asked, AddPartitionsToTxnRequest)
        assert asked.transactions[0].topics[0].name == OFFSETS
        code = scene.second.receive(connection).topics[0].partitions[0].error_code
        assert code == (0 if version == 5 else ErrorCode.TRANSACTION_ABORTABLE)

    def test_they_count_when_the_transaction_ends(self, scene: Scene) -> None:
        scene.second.send(scene.second.connect(), offset_commit(scene.producer), 5)
        scene.exchange()
        assert committed_offset(scene.second, "g").topics == []
        scene.producer.end(commit=True, version=5)
        scene.exchange()
        (topic,) = committed_offset(scene.second, "g").topics
        assert topic.partitions[0].committed_offset == 7

    def test_without_an_answer_the_client_asks_again(self, scene: Scene) -> None:
        connection = scene.second.connect()
        scene.second.send(connection, offset_commit(scene.producer), 5)
        scene.lose()
        code = scene.second.receive(connection).topics[0].partitions[0].error_code
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def test_a_group_that_moves_meanwhile_takes_none(self, scene: Scene) -> None:
        connection = scene.second.connect()
        scene.second.send(connection, offset_commit(scene.producer), 5)
        lead(scene.second, OFFSETS, 0, 1)
        scene.exchange()
        code = scene.second.receive(connection).topics[0].partitions[0].error_code
        assert code == ErrorCode.NOT_COORDINATOR


def test_a_sink_is_on_another_broker_than_its_partitions(scene: Scene) -> None:
    request = JoinSinkRequest(app_id="app", query_id="q", run_id="r", batch_id=0, task=0, timeout_ms=60_000)
    joined = scene.first.ask(request, 0)
    assert joined.error_code == 0
    produce = scene.second.produce_request("t", scene.batch(joined.producer_id, joined.producer_epoch))
    produce.transactional_id = TRANSACTIONAL_ID_PREFIX + "app"
    written = Written(scene.second, produce, 12)
    (asked,) = scene.exchange()
    assert isinstance(asked, AddPartitionsToTxnRequest)
    assert written.code == 0
    assert scene.stable_end == 0
    attempt = CommittedAttempt(producer_id=joined.producer_id, producer_epoch=joined.producer_epoch)
    commit = CommitSinkRequest(app_id="app", query_id="q", run_id="r", batch_id=0, attempts=[attempt])
    assert scene.first.ask(commit, 0).error_code == 0
    (asked,) = scene.exchange()
    assert isinstance(asked, WriteTxnMarkersRequest)
    assert scene.stable_end == 2
