"""A transactional producer's machine: which errors pass, which end a transaction, which end the producer."""

from __future__ import annotations

from typing import Any

import pytest

from harness.producer_stage import TOPIC, Stage
from headrace.client.cluster import TopicPartition
from headrace.client.errors import (
    ConnectionLost,
    InvalidInput,
    KafkaError,
    ProducerUnusable,
    TransactionAborted,
    TransactionMustAbort,
)
from headrace.client.membership.events import CommittedOffset
from headrace.client.producer.transaction import ALLOWED, State
from headrace.client.producer.transaction_requests import GroupMembership
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


def make(version: int, **more: Any) -> Stage:
    stage = Stage(transaction_version=version, transactional_id="tx", **({"linger_s": 0.0} | more))
    stage.learn_topic()
    stage.run(stage.session.init())
    return stage


@pytest.fixture(params=[1, 2], ids=["first protocol", "second protocol"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return make(request.param)


def outgoing(stage: Stage, api_key: int) -> Any:
    """The next request of that kind, which nobody carries; all others are carried out."""
    for _ in range(100):
        for each in stage.sender.requests(stage.now):
            question = each.question
            key = question.kind.KEY if hasattr(question, "kind") else question.KEY
            if key == api_key:
                return each
            stage._post(each)
        for link in list(stage.links.values()):
            while stage.deliver(link):
                pass
            while stage.hear(link):
                pass
        stage.desk.advance(0.05)
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
    def test_a_transaction_is_committed(self, stage: Stage) -> None:
        stage.session.begin()
        delivery = stage.send(0, b"a")
        stage.settle()
        assert delivery.result().offset == 0
        assert stage.values(0, committed_only=True) == []
        stage.run(stage.session.commit())
        assert stage.values(0, committed_only=True) == [b"a"]
        assert stage.session.state is State.READY

    def test_commit_flushes_what_lingers(self) -> None:
        stage = make(2, linger_s=50.0)
        stage.session.begin()
        stage.send(0, b"a")
        stage.run(stage.session.commit())
        assert stage.values(0, committed_only=True) == [b"a"]

    def test_an_empty_transaction_asks_nobody(self, stage: Stage) -> None:
        asked = len(stage.asked)
        stage.session.begin()
        stage.run(stage.session.commit())
        stage.session.begin()
        stage.run(stage.session.abort())
        assert len(stage.asked) == asked

    def test_partitions_join_by_being_added_or_by_being_written(self, stage: Stage) -> None:
        stage.session.begin()
        stage.send(0, b"a")
        stage.run(stage.session.send_offsets(OFFSETS, GroupMembership("g")))
        stage.run(stage.session.commit())
        apis = {api_key for api_key, _ in stage.asked}
        versions = dict(stage.asked)
        if stage.session.is_second:
            assert not {ADD_PARTITIONS, ADD_OFFSETS} & apis
            assert versions[PRODUCE] > 11
            assert (versions[END_TXN], versions[TXN_OFFSET_COMMIT]) == (5, 5)
            assert stage.sender.sequences.producer_epoch == 1, "every end raises the epoch"
        else:
            assert {ADD_PARTITIONS, ADD_OFFSETS} <= apis
            assert (versions[PRODUCE], versions[END_TXN], versions[TXN_OFFSET_COMMIT]) == (11, 4, 4)
            assert versions[ADD_PARTITIONS] == 3
            assert stage.sender.sequences.producer_epoch == 0

    def test_sequences_go_on_from_transaction_to_transaction(self, stage: Stage) -> None:
        for number in range(3):
            stage.session.begin()
            stage.send(0, b"%d" % number)
            stage.run(stage.session.commit())
        assert stage.values(0, committed_only=True) == [b"0", b"1", b"2"]

    def test_an_abort_drops_what_was_not_sent(self, stage: Stage) -> None:
        stage.session.begin()
        sent = stage.send(0, b"sent")
        stage.settle()
        unsent = stage.send(0, b"unsent")
        stage.run(stage.session.abort())
        assert sent.error is None
        assert isinstance(unsent.error, TransactionAborted)
        assert stage.values(0, committed_only=True) == []
        assert stage.values(0) == [b"sent"]
        stage.session.begin()
        stage.send(0, b"next")
        stage.run(stage.session.commit())
        assert stage.values(0, committed_only=True) == [b"next"]

    def test_asking_twice_is_asking_once(self, stage: Stage) -> None:
        """A wait that was too short is not the end of what was waited for."""
        assert stage.session.init() is stage.session.init()
        stage.session.begin()
        stage.send(0, b"a")
        pending = stage.session.commit()
        assert stage.session.commit() is pending
        stage.run(pending)
        assert stage.values(0, committed_only=True) == [b"a"]


class TestPassingTroubles:
    @pytest.mark.parametrize(
        "code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    )
    def test_a_busy_coordinator_is_asked_again(self, stage: Stage, code: int) -> None:
        stage.session.begin()
        stage.send(0, b"a")
        pending = stage.session.commit()
        end = outgoing(stage, END_TXN)
        stage.sender.answered(stage.now, end.ticket, EndTxnResponse(error_code=code))
        assert not pending.is_done
        assert stage.sender.deadline() > stage.now
        stage.run(pending)
        assert stage.values(0, committed_only=True) == [b"a"]

    @pytest.mark.parametrize(
        "trouble", [ConnectionLost("gone"), EndTxnResponse(error_code=int(ErrorCode.NOT_COORDINATOR))]
    )
    def test_a_coordinator_that_is_not_there_is_looked_for(self, stage: Stage, trouble: Any) -> None:
        stage.session.begin()
        stage.send(0, b"a")
        pending = stage.session.commit()
        end = outgoing(stage, END_TXN)
        finds = [api_key for api_key, _ in stage.asked].count(FIND)
        stage.sender.answered(stage.now, end.ticket, trouble)
        stage.run(pending)
        assert [api_key for api_key, _ in stage.asked].count(FIND) == finds + 1
        assert stage.values(0, committed_only=True) == [b"a"]

    def test_only_offsets_that_failed_are_sent_again(self, stage: Stage) -> None:
        stage.session.begin()
        pending = stage.session.send_offsets(
            OFFSETS | {TopicPartition(TOPIC, 1): CommittedOffset(7)}, GroupMembership("g")
        )
        first = outgoing(stage, TXN_OFFSET_COMMIT)
        told = offsets_told(0)
        told.topics[0].partitions.append(
            TxnOffsetCommitResponsePartition(
                partition_index=1, error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            )
        )
        stage.sender.answered(stage.now, first.ticket, told)
        second = outgoing(stage, TXN_OFFSET_COMMIT).question.make(4)
        assert [each.partition_index for each in second.topics[0].partitions] == [1]
        assert not pending.is_done


class TestTroublesThatEndTheTransaction:
    @pytest.mark.parametrize("version", [1, 2])
    def test_a_record_that_fails_dooms_it_until_it_is_aborted(self, version: int) -> None:
        stage = make(version, topic_configs={"max_message_bytes": "700"}, batch_bytes=300)
        stage.session.begin()
        first = [stage.send(0, b"first" * 50), stage.send(0, b"x" * 2000), stage.send(0, b"last" * 50)]
        stage.send(1, b"good")
        with pytest.raises(TransactionMustAbort, match="MESSAGE_TOO_LARGE"):
            stage.run(stage.session.commit())
        stage.run(stage.session.abort())
        assert [delivery.error is None for delivery in first] == [True, False, False]
        assert stage.values(1, committed_only=True) == []
        stage.session.begin()
        stage.send(0, b"again")
        stage.run(stage.session.commit())
        assert stage.values(0, committed_only=True) == [b"again"]

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
    def test_offsets_that_the_group_refuses(self, stage: Stage, code: int) -> None:
        stage.session.begin()
        stage.send(0, b"a")
        pending = stage.session.send_offsets(OFFSETS, GroupMembership("g", 3, "m"))
        commit = outgoing(stage, TXN_OFFSET_COMMIT)
        stage.sender.answered(stage.now, commit.ticket, offsets_told(code))
        assert isinstance(pending.error, TransactionMustAbort)
        assert isinstance(pending.error.__cause__, KafkaError)
        with pytest.raises(TransactionMustAbort):
            stage.session.commit()
        with pytest.raises(TransactionMustAbort):
            stage.session.check_may_send()
        stage.run(stage.session.abort())
        assert stage.values(0, committed_only=True) == []
        stage.session.begin()
        stage.send(0, b"b")
        stage.run(stage.session.commit())
        assert stage.values(0, committed_only=True) == [b"b"]

    def test_a_group_that_may_not_be_used(self, stage: Stage) -> None:
        stage.session.begin()
        pending = stage.session.send_offsets(OFFSETS, GroupMembership("g"))
        while (find := outgoing(stage, FIND)).question.make(4).coordinator_keys != ["g"]:
            stage._post(find)
        told = Coordinator(key="g", error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        stage.sender.answered(stage.now, find.ticket, FindCoordinatorResponse(coordinators=[told]))
        assert isinstance(pending.error, TransactionMustAbort)
        stage.run(stage.session.abort())
        assert stage.session.state is State.READY

    def test_a_partition_that_may_not_be_written(self) -> None:
        stage = make(1)
        stage.session.begin()
        delivery = stage.send(0, b"a")
        add = outgoing(stage, ADD_PARTITIONS)
        stage.sender.answered(stage.now, add.ticket, added(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        with pytest.raises(TransactionMustAbort, match="TOPIC_AUTHORIZATION_FAILED"):
            stage.session.commit()
        stage.run(stage.session.abort())
        assert isinstance(delivery.error, TransactionAborted)
        assert stage.sender.sequences.producer_epoch >= 1, "sequences in doubt: the epoch is raised"

    def test_an_answer_to_what_was_asked_before_the_abort_is_no_obstacle(self) -> None:
        stage = make(1)
        stage.session.begin()
        stage.send(0, b"a")
        add = outgoing(stage, ADD_PARTITIONS)
        pending = stage.session.abort()
        stage.sender.answered(stage.now, add.ticket, added(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        stage.run(pending)
        assert stage.session.state is State.READY


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
    def test_after_it_nothing_goes(self, stage: Stage, code: int) -> None:
        stage.session.begin()
        stage.send(0, b"a")
        pending = stage.session.commit()
        end = outgoing(stage, END_TXN)
        stage.sender.answered(stage.now, end.ticket, EndTxnResponse(error_code=int(code)))
        assert isinstance(pending.error, ProducerUnusable)
        for call in (stage.session.begin, stage.session.commit, stage.session.abort):
            with pytest.raises(ProducerUnusable):
                call()

    def test_who_may_not_have_the_id_is_told(self) -> None:
        stage = Stage(transactional_id="tx")
        pending = stage.session.init()
        init = outgoing(stage, INIT)
        code = int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        stage.sender.answered(stage.now, init.ticket, InitProducerIdResponse(error_code=code))
        assert isinstance(pending.error, KafkaError)
        assert pending.error.name == "INVALID_TRANSACTION_TIMEOUT"

    def test_records_that_wait_are_given_up(self) -> None:
        stage = make(1)
        stage.session.begin()
        delivery = stage.send(0, b"a")
        add = outgoing(stage, ADD_PARTITIONS)
        stage.sender.answered(stage.now, add.ticket, added(int(ErrorCode.PRODUCER_FENCED)))
        stage.sender.requests(stage.now)
        assert isinstance(delivery.error, TransactionAborted)
        assert stage.sender.is_idle


class TestCallsOutOfPlace:
    def test_each_has_its_state(self, stage: Stage) -> None:
        session = stage.session
        with pytest.raises(InvalidInput, match="ready"):
            session.check_may_send()
        with pytest.raises(InvalidInput, match="committed"):
            session.commit()
        with pytest.raises(InvalidInput, match="aborted"):
            session.abort()
        session.begin()
        with pytest.raises(InvalidInput, match="begun"):
            session.begin()

    def test_before_init_nothing_goes(self) -> None:
        stage = Stage(transactional_id="tx")
        with pytest.raises(InvalidInput, match="uninitialized"):
            stage.session.begin()

    def test_every_state_but_the_last_has_a_way_on(self) -> None:
        assert {state for state, ways in ALLOWED.items() if not ways} == {State.FATAL}
        assert set(ALLOWED) == set(State)
