"""A transactional producer's machine: which errors pass, which end a transaction, which end the producer."""

from __future__ import annotations

from typing import Any

import pytest

from harness.producer_simulation import TOPIC, ProducerSimulation
from headrace.client.cluster import TopicPartition
from headrace.client.errors import (
    ConnectionLost,
    InvalidInput,
    KafkaError,
    ProducerUnusable,
    TransactionAborted,
    TransactionMustAbort,
)
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.producer.transaction import ALLOWED, State
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.protocol.messages.end_txn import EndTxnResponse
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdResponse
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIND, INIT = 10, 22
PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 24, 25, 26, 28
AT = TopicPartition(TOPIC, 0)
OFFSETS = {AT: CommittedOffset(5)}


def make(version: int, **more: Any) -> ProducerSimulation:
    simulation = ProducerSimulation(
        transaction_version=version, transactional_id="tx", **({"linger_s": 0.0} | more)
    )
    simulation.learn_topic()
    simulation.run(simulation.session.init())
    return simulation


@pytest.fixture(params=[1, 2], ids=["first protocol", "second protocol"])
def simulation(request: pytest.FixtureRequest) -> ProducerSimulation:
    return make(request.param)


def outgoing(simulation: ProducerSimulation, api_key: int) -> Any:
    """The next request of that kind, which nobody carries; all others are carried out."""
    for _ in range(100):
        for each in simulation.sender.requests(simulation.now):
            question = each.question
            key = question.kind.KEY if hasattr(question, "kind") else question.KEY
            if key == api_key:
                return each
            simulation.network.post(each)
        for link in list(simulation.network.links.values()):
            while simulation.network.deliver(link):
                pass
            while simulation.network.hear(link):
                pass
        simulation.host.advance(0.05)
    raise AssertionError(f"no request {api_key} was sent")


def added(code: int) -> AddPartitionsToTxnResponse:
    told = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=[told])]
    )


def offsets_told(code: int) -> TxnOffsetCommitResponse:
    told = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name=TOPIC, partitions=[told])])


class TestTheGoodWay:
    def test_a_transaction_is_committed(self, simulation: ProducerSimulation) -> None:
        simulation.session.begin()
        delivery = simulation.send(0, b"a")
        simulation.settle()
        assert delivery.result().offset == 0
        assert simulation.values(0, committed_only=True) == []
        simulation.run(simulation.session.commit())
        assert simulation.values(0, committed_only=True) == [b"a"]
        assert simulation.session.state is State.READY

    def test_commit_flushes_what_lingers(self) -> None:
        simulation = make(2, linger_s=50.0)
        simulation.session.begin()
        simulation.send(0, b"a")
        simulation.run(simulation.session.commit())
        assert simulation.values(0, committed_only=True) == [b"a"]

    def test_an_empty_transaction_asks_nobody(self, simulation: ProducerSimulation) -> None:
        asked = len(simulation.network.requests)
        simulation.session.begin()
        simulation.run(simulation.session.commit())
        simulation.session.begin()
        simulation.run(simulation.session.abort())
        assert len(simulation.network.requests) == asked

    def test_partitions_join_by_being_added_or_by_being_written(self, simulation: ProducerSimulation) -> None:
        simulation.session.begin()
        simulation.send(0, b"a")
        simulation.run(simulation.session.send_offsets(OFFSETS, GroupMembership("g")))
        simulation.run(simulation.session.commit())
        apis = {request.KEY for request, _ in simulation.network.requests}
        versions = {request.KEY: version for request, version in simulation.network.requests}
        if simulation.session.is_second:
            assert not {ADD_PARTITIONS, ADD_OFFSETS} & apis
            assert versions[PRODUCE] > 11
            assert (versions[END_TXN], versions[TXN_OFFSET_COMMIT]) == (5, 5)
            assert simulation.sender.sequences.producer_epoch == 1, "every end raises the epoch"
        else:
            assert {ADD_PARTITIONS, ADD_OFFSETS} <= apis
            assert (versions[PRODUCE], versions[END_TXN], versions[TXN_OFFSET_COMMIT]) == (11, 4, 4)
            assert versions[ADD_PARTITIONS] == 3
            assert simulation.sender.sequences.producer_epoch == 0

    def test_sequences_go_on_from_transaction_to_transaction(self, simulation: ProducerSimulation) -> None:
        for number in range(3):
            simulation.session.begin()
            simulation.send(0, b"%d" % number)
            simulation.run(simulation.session.commit())
        assert simulation.values(0, committed_only=True) == [b"0", b"1", b"2"]

    def test_an_abort_drops_what_was_not_sent(self, simulation: ProducerSimulation) -> None:
        simulation.session.begin()
        sent = simulation.send(0, b"sent")
        simulation.settle()
        unsent = simulation.send(0, b"unsent")
        simulation.run(simulation.session.abort())
        assert sent.error is None
        assert isinstance(unsent.error, TransactionAborted)
        assert simulation.values(0, committed_only=True) == []
        assert simulation.values(0) == [b"sent"]
        simulation.session.begin()
        simulation.send(0, b"next")
        simulation.run(simulation.session.commit())
        assert simulation.values(0, committed_only=True) == [b"next"]

    def test_asking_twice_is_asking_once(self, simulation: ProducerSimulation) -> None:
        """A wait that was too short is not the end of what was waited for."""
        assert simulation.session.init() is simulation.session.init()
        simulation.session.begin()
        simulation.send(0, b"a")
        pending = simulation.session.commit()
        assert simulation.session.commit() is pending
        simulation.run(pending)
        assert simulation.values(0, committed_only=True) == [b"a"]


class TestPassingTroubles:
    @pytest.mark.parametrize(
        "code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    )
    def test_a_busy_coordinator_is_asked_again(self, simulation: ProducerSimulation, code: int) -> None:
        simulation.session.begin()
        simulation.send(0, b"a")
        pending = simulation.session.commit()
        end = outgoing(simulation, END_TXN)
        simulation.sender.answered(simulation.now, end.ticket, EndTxnResponse(error_code=code))
        assert not pending.is_done
        assert simulation.sender.deadline() > simulation.now
        simulation.run(pending)
        assert simulation.values(0, committed_only=True) == [b"a"]

    @pytest.mark.parametrize(
        "trouble", [ConnectionLost("gone"), EndTxnResponse(error_code=int(ErrorCode.NOT_COORDINATOR))]
    )
    def test_a_coordinator_that_is_not_there_is_looked_for(
        self, simulation: ProducerSimulation, trouble: Any
    ) -> None:
        simulation.session.begin()
        simulation.send(0, b"a")
        pending = simulation.session.commit()
        end = outgoing(simulation, END_TXN)
        finds = [request.KEY for request, _ in simulation.network.requests].count(FIND)
        simulation.sender.answered(simulation.now, end.ticket, trouble)
        simulation.run(pending)
        assert [request.KEY for request, _ in simulation.network.requests].count(FIND) == finds + 1
        assert simulation.values(0, committed_only=True) == [b"a"]

    def test_only_offsets_that_failed_are_sent_again(self, simulation: ProducerSimulation) -> None:
        simulation.session.begin()
        pending = simulation.session.send_offsets(
            OFFSETS | {TopicPartition(TOPIC, 1): CommittedOffset(7)}, GroupMembership("g")
        )
        first = outgoing(simulation, TXN_OFFSET_COMMIT)
        told = offsets_told(0)
        told.topics[0].partitions.append(
            TxnOffsetCommitResponsePartition(
                partition_index=1, error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            )
        )
        simulation.sender.answered(simulation.now, first.ticket, told)
        second = outgoing(simulation, TXN_OFFSET_COMMIT).question.make(4)
        assert [each.partition_index for each in second.topics[0].partitions] == [1]
        assert not pending.is_done


class TestTroublesThatEndTheTransaction:
    @pytest.mark.parametrize("version", [1, 2])
    def test_a_record_that_fails_dooms_it_until_it_is_aborted(self, version: int) -> None:
        simulation = make(version, topic_configs={"max_message_bytes": "700"}, batch_bytes=300)
        simulation.session.begin()
        first = [
            simulation.send(0, b"first" * 50),
            simulation.send(0, b"x" * 2000),
            simulation.send(0, b"last" * 50),
        ]
        simulation.send(1, b"good")
        with pytest.raises(TransactionMustAbort, match="MESSAGE_TOO_LARGE"):
            simulation.run(simulation.session.commit())
        simulation.run(simulation.session.abort())
        assert [delivery.error is None for delivery in first] == [True, False, False]
        assert simulation.values(1, committed_only=True) == []
        simulation.session.begin()
        simulation.send(0, b"again")
        simulation.run(simulation.session.commit())
        assert simulation.values(0, committed_only=True) == [b"again"]

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTION_ABORTABLE,
        ],
    )
    def test_offsets_that_the_group_refuses(self, simulation: ProducerSimulation, code: int) -> None:
        simulation.session.begin()
        simulation.send(0, b"a")
        pending = simulation.session.send_offsets(OFFSETS, GroupMembership("g", 3, "m"))
        commit = outgoing(simulation, TXN_OFFSET_COMMIT)
        simulation.sender.answered(simulation.now, commit.ticket, offsets_told(code))
        assert isinstance(pending.error, TransactionMustAbort)
        assert isinstance(pending.error.__cause__, KafkaError)
        with pytest.raises(TransactionMustAbort):
            simulation.session.commit()
        with pytest.raises(TransactionMustAbort):
            simulation.session.check_may_send()
        simulation.run(simulation.session.abort())
        assert simulation.values(0, committed_only=True) == []
        simulation.session.begin()
        simulation.send(0, b"b")
        simulation.run(simulation.session.commit())
        assert simulation.values(0, committed_only=True) == [b"b"]

    def test_a_group_that_may_not_be_used(self, simulation: ProducerSimulation) -> None:
        simulation.session.begin()
        pending = simulation.session.send_offsets(OFFSETS, GroupMembership("g"))
        while (find := outgoing(simulation, FIND)).question.make(4).coordinator_keys != ["g"]:
            simulation.network.post(find)
        told = Coordinator(key="g", error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        simulation.sender.answered(simulation.now, find.ticket, FindCoordinatorResponse(coordinators=[told]))
        assert isinstance(pending.error, TransactionMustAbort)
        simulation.run(simulation.session.abort())
        assert simulation.session.state is State.READY

    def test_a_partition_that_may_not_be_written(self) -> None:
        simulation = make(1)
        simulation.session.begin()
        delivery = simulation.send(0, b"a")
        add = outgoing(simulation, ADD_PARTITIONS)
        simulation.sender.answered(
            simulation.now, add.ticket, added(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        )
        with pytest.raises(TransactionMustAbort, match="TOPIC_AUTHORIZATION_FAILED"):
            simulation.session.commit()
        simulation.run(simulation.session.abort())
        assert isinstance(delivery.error, TransactionAborted)
        assert simulation.sender.sequences.producer_epoch >= 1, "sequences in doubt: the epoch is raised"

    def test_an_answer_to_what_was_asked_before_the_abort_is_no_obstacle(self) -> None:
        simulation = make(1)
        simulation.session.begin()
        simulation.send(0, b"a")
        add = outgoing(simulation, ADD_PARTITIONS)
        pending = simulation.session.abort()
        simulation.sender.answered(
            simulation.now, add.ticket, added(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        )
        simulation.run(pending)
        assert simulation.session.state is State.READY


class TestTroublesThatEndTheProducer:
    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_TXN_STATE,
        ],
    )
    def test_after_it_nothing_goes(self, simulation: ProducerSimulation, code: int) -> None:
        simulation.session.begin()
        simulation.send(0, b"a")
        pending = simulation.session.commit()
        end = outgoing(simulation, END_TXN)
        simulation.sender.answered(simulation.now, end.ticket, EndTxnResponse(error_code=int(code)))
        assert isinstance(pending.error, ProducerUnusable)
        for call in (simulation.session.begin, simulation.session.commit, simulation.session.abort):
            with pytest.raises(ProducerUnusable):
                call()

    def test_who_may_not_have_the_id_is_told(self) -> None:
        simulation = ProducerSimulation(transactional_id="tx")
        pending = simulation.session.init()
        init = outgoing(simulation, INIT)
        code = int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        simulation.sender.answered(simulation.now, init.ticket, InitProducerIdResponse(error_code=code))
        assert isinstance(pending.error, KafkaError)
        assert pending.error.name == "INVALID_TRANSACTION_TIMEOUT"

    def test_records_that_wait_are_given_up(self) -> None:
        simulation = make(1)
        simulation.session.begin()
        delivery = simulation.send(0, b"a")
        add = outgoing(simulation, ADD_PARTITIONS)
        simulation.sender.answered(simulation.now, add.ticket, added(int(ErrorCode.PRODUCER_FENCED)))
        simulation.sender.requests(simulation.now)
        assert isinstance(delivery.error, TransactionAborted)
        assert simulation.sender.is_idle


class TestCallsOutOfPlace:
    def test_each_has_its_state(self, simulation: ProducerSimulation) -> None:
        session = simulation.session
        with pytest.raises(InvalidInput, match="ready"):
            session.check_may_send()
        with pytest.raises(InvalidInput, match="cannot commit a transaction"):
            session.commit()
        with pytest.raises(InvalidInput, match="cannot abort a transaction"):
            session.abort()
        session.begin()
        with pytest.raises(InvalidInput, match="cannot begin a transaction"):
            session.begin()

    def test_before_init_nothing_goes(self) -> None:
        simulation = ProducerSimulation(transactional_id="tx")
        with pytest.raises(InvalidInput, match="uninitialized"):
            simulation.session.begin()

    def test_every_state_but_the_last_has_a_way_on(self) -> None:
        assert {state for state, ways in ALLOWED.items() if not ways} == {State.FATAL}
        assert set(ALLOWED) == set(State)
