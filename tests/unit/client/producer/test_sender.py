"""The sending machine, story by story, before a real node whose network the test holds in its hands."""

from __future__ import annotations

from typing import Any

import pytest

from harness.producer_simulation import TOPIC, ProducerSimulation, produced
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, TopicPartition
from headrace.client.errors import (
    BadResponse,
    BufferExhausted,
    ConnectionLost,
    KafkaError,
    RecordLost,
    TimedOut,
    Unreachable,
)
from headrace.client.network.connection import ByVersion
from headrace.client.producer.rejections import (
    BufferFull,
    MetadataMissing,
    RecordTooLarge,
    TopicUnknown,
    UnknownPartition,
    error_of,
)
from headrace.client.producer.topics import PartitionsGrew
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from headrace.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.records.batch import read_header

FIRST = TopicPartition(TOPIC, 0)
PRODUCE_VERSION = 13


@pytest.fixture
def simulation() -> ProducerSimulation:
    made = ProducerSimulation(linger_s=0.0)
    made.learn_topic()
    return made


def answer(simulation: ProducerSimulation, code: int, partition: int = 0, **more: Any) -> ProduceResponse:
    """What a broker could say to a request with one batch."""
    told = PartitionProduceResponse(index=partition, error_code=code, base_offset=-1, **more)
    topic_id = simulation.cluster.topics[TOPIC].topic_id
    return ProduceResponse(
        responses=[TopicProduceResponse(name=TOPIC, topic_id=topic_id, partition_responses=[told])]
    )


def departures(simulation: ProducerSimulation) -> list[Any]:
    """The produce requests that leave now; nobody carries them."""
    return [
        outgoing._replace(question=outgoing.question.make(PRODUCE_VERSION))
        for outgoing in simulation.sender.requests(simulation.now)
        if isinstance(outgoing.question, ByVersion) and outgoing.question.kind is ProduceRequest
    ]


def identified(**settings: Any) -> ProducerSimulation:
    """A producer that knows its topic and its id, and whose id is known: its requests are the test's to
    answer.
    """
    made = stranger(**settings)
    made.sender.sequences.acknowledged_at.update(made.all_at())
    return made


def stranger(**settings: Any) -> ProducerSimulation:
    """The same, and no leader has seen its id."""
    made = ProducerSimulation(**({"linger_s": 0.0} | settings))
    made.learn_topic()
    while made.network.exchange():
        pass
    return made


def numbers(outgoing: Any) -> list[tuple[int, int, int]]:
    """Producer epoch, first sequence and record count of each batch in a request."""
    headers = [
        read_header(bytes(data.records))
        for topic in outgoing.question.topic_data
        for data in topic.partition_data
    ]
    return [(header.producer_epoch, header.base_sequence, header.record_count) for header in headers]


class TestLingering:
    def test_records_wait_for_company(self) -> None:
        simulation = identified(linger_s=0.5)
        simulation.send(0, b"a")
        assert departures(simulation) == []
        assert simulation.sender.deadline() == pytest.approx(simulation.now + 0.5)
        simulation.host.advance(0.5)
        (outgoing,) = departures(simulation)
        assert numbers(outgoing) == [(0, 0, 1)]

    def test_a_full_batch_does_not_wait(self) -> None:
        simulation = identified(linger_s=500.0, delivery_s=1000.0, batch_bytes=400)
        for _ in range(5):
            simulation.send(0, b"x" * 100)
        sent = [count for outgoing in departures(simulation) for _, _, count in numbers(outgoing)]
        assert sent == [2, 2]
        assert not departures(simulation)

    def test_a_batch_soon_after_another_grows_until_it_has_waited_or_is_full(self) -> None:
        """Many records become few requests, and no record waits longer than a single one would."""
        simulation = identified(linger_s=0.5, batch_bytes=400, batch_bytes_max=1000)
        for _ in range(4):
            simulation.send(0, b"x" * 100)
        (first,) = departures(simulation)  # nothing had left just before: batch.size is enough
        assert numbers(first) == [(0, 0, 4)]
        simulation.host.advance(0.2)
        for _ in range(4):
            simulation.send(0, b"x" * 100)
        assert departures(simulation) == []
        assert simulation.sender.deadline() == pytest.approx(simulation.now + 0.5)
        for _ in range(6):
            simulation.send(0, b"x" * 100)
        (full,) = departures(simulation)
        assert numbers(full) == [(0, 4, 8)]
        assert departures(simulation) == []
        simulation.host.advance(0.5)
        (late,) = departures(simulation)
        assert numbers(late) == [(0, 12, 2)]
        simulation.host.advance(0.5)
        for _ in range(4):
            simulation.send(0, b"x" * 100)
        (again,) = departures(simulation)
        assert numbers(again) == [(0, 14, 4)]

    def test_a_flush_ends_all_waiting(self) -> None:
        simulation = identified(linger_s=500.0, delivery_s=1000.0)
        simulation.send(0, b"a")
        simulation.send(1, b"b")
        flush = simulation.sender.flush()
        simulation.send(1, b"later, and so no part of it")
        assert (flush.is_done, flush.records_left) == (False, 2)
        while simulation.network.exchange():
            pass
        assert (flush.is_done, flush.records_left) == (True, 0)
        assert (simulation.values(0), simulation.values(1)) == ([b"a"], [b"b"])
        assert not simulation.sender.is_idle


class TestInFlight:
    def test_no_more_than_five_requests_wait_for_answers(self) -> None:
        simulation = identified(batch_bytes=200)
        for _ in range(20):
            simulation.send(0, b"x" * 100)
        first = [outgoing for _ in range(10) for outgoing in departures(simulation)]
        assert [numbers(outgoing)[0][1] for outgoing in first] == [0, 1, 2, 3, 4]
        simulation.sender.answered(simulation.now, first[0].ticket, answer(simulation, 0))
        assert len(departures(simulation)) == 1

    def test_a_leader_that_has_not_seen_us_gets_one_batch_first(self) -> None:
        """Else it could send the first away while it is not ready yet, and take the second for our first."""
        simulation = stranger(batch_bytes=200)
        for _ in range(3):
            simulation.send(0, b"x" * 150)
        (first,) = departures(simulation)
        assert not departures(simulation)
        simulation.sender.answered(
            simulation.now, first.ticket, answer(simulation, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )
        simulation.settle()
        assert simulation.values(0) == [b"x" * 150] * 3
        for _ in range(3):
            simulation.send(0, b"x" * 150)
        assert len(departures(simulation)) == 3

    def test_a_request_carries_one_batch_of_each_partition_and_is_bounded(self) -> None:
        simulation = identified(partitions=8, batch_bytes=900, request_bytes_max=2000)
        for partition in range(8):
            simulation.send(partition, b"x" * 800)
        carried = [
            [data.index for topic in each.question.topic_data for data in topic.partition_data]
            for each in departures(simulation)
        ]
        assert carried == [[0, 1], [2, 3], [4, 5], [6, 7]], "everybody has a turn"

    def test_what_waits_for_an_answer_asks_for_no_time(self) -> None:
        simulation = identified(batch_bytes=200, in_flight_max=1, delivery_s=100.0)
        simulation.send(0, b"x" * 150)
        simulation.send(0, b"x" * 150)
        sent_at = simulation.now
        departures(simulation)
        assert simulation.sender.deadline() == pytest.approx(sent_at + 100.0)

    def test_a_broker_that_asks_for_a_pause_gets_one(self) -> None:
        simulation = identified()
        simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        told = answer(simulation, 0)
        told.throttle_time_ms = 700
        simulation.sender.answered(simulation.now, outgoing.ticket, told)
        simulation.send(0, b"b")
        assert departures(simulation) == []
        assert simulation.sender.deadline() == pytest.approx(simulation.now + 0.7)
        simulation.host.advance(0.7)
        assert len(departures(simulation)) == 1


class TestRetries:
    def test_a_repeat_has_the_same_numbers_and_overtakes_nothing(self) -> None:
        simulation = identified(batch_bytes=200)
        for _ in range(3):
            simulation.send(0, b"x" * 150)
        in_flight = [outgoing for _ in range(3) for outgoing in departures(simulation)]
        for outgoing in reversed(in_flight):
            told = answer(simulation, ErrorCode.NOT_ENOUGH_REPLICAS)
            simulation.sender.answered(simulation.now, outgoing.ticket, told)
        simulation.host.advance(2.0)
        (again,) = departures(simulation)
        assert numbers(again) == [(0, 0, 1)]
        assert departures(simulation) == [], "the next repeat waits for the one before"
        simulation.sender.answered(simulation.now, again.ticket, answer(simulation, 0))
        (second,) = departures(simulation)
        assert numbers(second) == [(0, 1, 1)]

    def test_without_idempotence_what_is_lost_together_is_repeated_in_order(self) -> None:
        simulation = identified(batch_bytes=200, is_idempotent=False)
        for value in (b"a", b"b", b"c"):
            simulation.send(0, value * 150)
            simulation.host.advance(0.001)
        for _ in range(3):
            simulation.network.pump()
        for link in list(simulation.network.links.values()):
            simulation.network.cut(link)
        simulation.settle()
        assert simulation.values(0) == [b"a" * 150, b"b" * 150, b"c" * 150]

    def test_pauses_grow_and_are_spread(self) -> None:
        simulation = identified(delivery_s=1000.0)
        simulation.send(0, b"a")
        pauses = []
        for _ in range(7):
            (outgoing,) = departures(simulation)
            simulation.sender.answered(
                simulation.now, outgoing.ticket, answer(simulation, ErrorCode.NOT_ENOUGH_REPLICAS)
            )
            pause = simulation.sender.deadline() - simulation.now
            pauses.append(pause)
            simulation.host.advance(pause)
        for pause, expected in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=True):
            assert 0.79 * expected <= pause <= 1.21 * expected
        assert len(set(pauses)) == 7

    def test_a_hint_of_the_new_leader_spares_the_question_and_the_wait(self) -> None:
        """KIP-951."""
        simulation = identified()
        simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        epoch = simulation.cluster.topics[TOPIC].partitions[0].leader_epoch
        told = answer(
            simulation,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=epoch + 1),
        )
        told.node_endpoints = [NodeEndpoint(node_id=7, host="new", port=9)]
        simulation.sender.answered(simulation.now, outgoing.ticket, told)
        (again,) = departures(simulation)
        assert again.to == Address("new", 9)
        assert numbers(again) == [(0, 0, 1)]

    def test_without_a_hint_the_leader_is_asked_for(self) -> None:
        simulation = identified()
        simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        told = answer(simulation, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        simulation.sender.answered(simulation.now, outgoing.ticket, told)
        simulation.host.advance(2.0)
        assert departures(simulation) == []
        assert simulation.cluster.stale == {TOPIC}

    def test_a_partition_that_the_answer_leaves_out_is_tried_again(self) -> None:
        simulation = identified()
        delivery = simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        simulation.sender.answered(simulation.now, outgoing.ticket, ProduceResponse())
        simulation.settle()
        assert delivery.result().offset == 0

    def test_an_answer_counts_though_the_topic_was_forgotten_meanwhile(self) -> None:
        """Without idempotence the broker would write a repeat once more."""
        simulation = ProducerSimulation(linger_s=0.0, is_idempotent=False)
        simulation.learn_topic()
        delivery = simulation.send(0, b"a")
        simulation.network.pump()
        lagging = MetadataResponseTopic(name=TOPIC, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        brokers = [MetadataResponseBroker(node_id=1, host="broker-1", port=9092)]
        simulation.cluster.update(MetadataResponse(brokers=brokers, topics=[lagging]))
        simulation.settle()
        assert delivery.result().offset == 0
        assert simulation.values(0) == [b"a"]

    def test_no_retries_are_allowed(self) -> None:
        simulation = identified(retries=0, is_idempotent=False)
        delivery = simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        simulation.sender.answered(
            simulation.now, outgoing.ticket, answer(simulation, ErrorCode.NOT_ENOUGH_REPLICAS)
        )
        assert isinstance(delivery.error, RecordLost)
        assert isinstance(delivery.error.__cause__, KafkaError)


class TestTheEnd:
    def test_a_refusal_is_told_with_kafkas_name_and_what_follows_is_not_held_up(self) -> None:
        simulation = identified(batch_bytes=200)
        first, second = simulation.send(0, b"x" * 150), simulation.send(0, b"y" * 150)
        in_flight = departures(simulation) + departures(simulation)
        simulation.sender.answered(
            simulation.now, in_flight[0].ticket, answer(simulation, ErrorCode.INVALID_RECORD)
        )
        assert isinstance(first.error, KafkaError)
        assert (first.error.name, first.error.is_retriable) == ("INVALID_RECORD", False)
        told = answer(simulation, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        simulation.sender.answered(simulation.now, in_flight[1].ticket, told)
        simulation.settle()
        assert simulation.sender.sequences.producer_epoch == 1, "it starts over in a new epoch"
        assert second.result().offset == 0

    def test_what_finds_no_leader_expires(self) -> None:
        simulation = identified(delivery_s=5.0, request_timeout_s=1.0)
        simulation.cluster.topics[TOPIC].partitions[0].leader = -1
        delivery = simulation.send(0, b"a")
        simulation.cluster.stale.clear()
        departures(simulation)
        assert simulation.sender.deadline() <= simulation.now + 5.0
        simulation.sender.requests(Instant(simulation.now + 5.0))
        assert isinstance(delivery.error, RecordLost)
        assert simulation.sender.is_idle
        assert simulation.accumulator.buffered_bytes == 0

    def test_an_answer_after_the_end_changes_nothing_for_the_user(self) -> None:
        simulation = identified(delivery_s=5.0, request_timeout_s=4.0)
        delivery = simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        simulation.host.advance(5.0)
        assert departures(simulation) == []
        assert isinstance(delivery.error, RecordLost)
        simulation.sender.answered(simulation.now, outgoing.ticket, answer(simulation, 0))
        assert isinstance(delivery.error, RecordLost)
        after = simulation.send(0, b"b")
        (outgoing,) = departures(simulation)
        assert numbers(outgoing) == [(1, 0, 1)], "nobody knew when it expired: a new epoch was begun"
        assert not after.is_done

    @pytest.mark.parametrize(
        ("first_answer", "is_sent_again"),
        [
            (ConnectionLost("the broker was killed"), False),
            (TimedOut("no answer"), False),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
            (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
            (ErrorCode.NOT_ENOUGH_REPLICAS, True),
            (Unreachable("connection refused"), True),
        ],
    )
    def test_behind_a_batch_that_was_given_up_none_is_written_twice(
        self, first_answer: Any, is_sent_again: bool
    ) -> None:
        """The new leader lacks the batch that expired, and the next one. The leader after it may have both:
        under new numbers it would write the second once more.
        """
        simulation = identified(delivery_s=5.0, request_timeout_s=30.0)
        simulation.send(0, b"a")
        departures(simulation)
        simulation.host.advance(2.0)
        after = simulation.send(0, b"b")
        (outgoing,) = departures(simulation)
        assert numbers(outgoing) == [(0, 1, 1)]
        if isinstance(first_answer, ErrorCode):
            first_answer = answer(simulation, first_answer)
        simulation.sender.answered(simulation.now, outgoing.ticket, first_answer)
        simulation.host.advance(3.1)  # the first one expires
        simulation.cluster.stale.clear()  # the leader was looked up
        (outgoing,) = departures(simulation)
        assert numbers(outgoing) == [(0, 1, 1)], "a broker that has it knows it by its numbers"
        gap = answer(simulation, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        simulation.sender.answered(simulation.now, outgoing.ticket, gap)
        simulation.host.advance(0.5)
        again = departures(simulation)
        if is_sent_again:
            assert [numbers(one) for one in again] == [[(1, 0, 1)]]
            assert not after.is_done
            return
        assert again == []
        assert isinstance(after.error, RecordLost)
        simulation.send(0, b"c")
        (outgoing,) = departures(simulation)
        assert numbers(outgoing) == [(1, 0, 1)], "nobody waits for them"
        assert simulation.accumulator.buffered_bytes > 0
        simulation.sender.answered(simulation.now, outgoing.ticket, answer(simulation, 0))
        assert simulation.accumulator.buffered_bytes == 0

    def test_a_peer_that_breaks_the_protocol_leaves_records_in_doubt(self) -> None:
        simulation = identified()
        delivery = simulation.send(0, b"a")
        (outgoing,) = departures(simulation)
        simulation.sender.answered(simulation.now, outgoing.ticket, BadResponse("rubbish"))
        assert isinstance(delivery.error, BadResponse)
        after = simulation.send(0, b"b")
        simulation.settle()
        assert after.result().offset == 0

    def test_giving_up_settles_all(self) -> None:
        simulation = identified(batch_bytes=200, in_flight_max=1)
        deliveries = [simulation.send(0, b"x" * 150) for _ in range(3)]
        departures(simulation)
        simulation.sender.give_up(RecordLost("closed"))
        assert all(isinstance(delivery.error, RecordLost) for delivery in deliveries)
        assert simulation.accumulator.buffered_bytes == 0
        assert len(simulation.sender.take_settled()) == 3

    def test_callbacks_are_called_by_who_takes_the_settled(self) -> None:
        simulation = identified()
        heard: list[int] = []
        simulation.send(0, b"a").add_callback(lambda told: heard.append(told.offset))
        simulation.settle()
        assert heard == []
        assert [error for batch in simulation.sender.take_settled() for error in batch.call_listeners()] == []
        assert heard == [0]


class TestSizes:
    @pytest.mark.parametrize("codec", [0, 4])
    def test_a_batch_that_the_topic_finds_too_large_is_sent_in_halves(self, codec: int) -> None:
        simulation = ProducerSimulation(
            linger_s=0.0, batch_bytes=4000, topic_configs={"max_message_bytes": "700"}, codec=codec
        )
        simulation.learn_topic()
        simulation.rng.seed(5)
        values = [simulation.rng.randbytes(150) for _ in range(20)]
        deliveries = [simulation.send(0, value) for value in values]
        heard: list[int] = []
        deliveries[-1].add_callback(lambda told: heard.append(told.offset))
        simulation.settle()
        for batch in simulation.sender.take_settled():
            batch.call_listeners()
        assert simulation.values(0) == values
        assert [delivery.result().offset for delivery in deliveries] == list(range(20))
        assert heard == [19]
        assert simulation.accumulator.buffered_bytes == 0
        before = produced(simulation)
        again = [simulation.send(0, value) for value in values]
        simulation.settle()
        assert [delivery.result().offset for delivery in again] == list(range(20, 40))
        assert produced(simulation) - before < 12, "less is gathered from now on"

    def test_one_record_that_is_too_large_is_refused_alone(self) -> None:
        simulation = ProducerSimulation(
            linger_s=0.0, batch_bytes=4000, topic_configs={"max_message_bytes": "700"}
        )
        simulation.learn_topic()
        sizes = [100, 2000, 100]
        deliveries = [simulation.send(0, simulation.rng.randbytes(size)) for size in sizes]
        simulation.settle()
        assert isinstance(deliveries[1].error, KafkaError)
        assert deliveries[1].error.name == "MESSAGE_TOO_LARGE"
        assert [deliveries[0].result().offset, deliveries[2].result().offset] == [0, 1]


class TestWithoutAcknowledgement:
    def test_records_are_delivered_once_they_are_written(self) -> None:
        simulation = ProducerSimulation(linger_s=0.0, acks=0, is_idempotent=False)
        simulation.learn_topic()
        delivery = simulation.send(0, b"a")
        simulation.settle()
        assert delivery.result().offset == -1
        assert simulation.values(0) == [b"a"]


class TestTopics:
    def test_growth_is_told_since_keys_move(self) -> None:
        simulation = identified(partitions=2, metadata_age_s=1.0)
        assert simulation.sender.take_events() == []
        grown = CreatePartitionsTopic(name=TOPIC, count=5, assignments=None)
        simulation.host.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3)
        simulation.host.advance(1.1)
        while simulation.network.exchange():
            pass
        assert simulation.sender.take_events() == [PartitionsGrew(TOPIC, 2, 5)]
        assert simulation.send(4, b"a").batch.queue.partition == 4

    def test_an_unknown_topic_is_asked_for_until_time_is_up(self) -> None:
        simulation = ProducerSimulation(host_settings={"auto.create.topics.enable": "false"})
        topics = simulation.sender.topics
        assert error_of(MetadataMissing("u"), "u", topics, is_late=False) is None
        for _ in range(3):
            simulation.network.exchange()
            simulation.host.advance(1.0)
        assert error_of(MetadataMissing("u"), "u", topics, is_late=False) is None
        error = error_of(MetadataMissing("u"), "u", topics, is_late=True)
        assert isinstance(error, TopicUnknown)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in str(error)

    def test_a_topic_that_cannot_be_is_told_at_once(self) -> None:
        simulation = ProducerSimulation()
        topics = simulation.sender.topics
        assert error_of(MetadataMissing("no/topic"), "no/topic", topics, is_late=False) is None
        simulation.network.exchange()
        error = error_of(MetadataMissing("no/topic"), "no/topic", topics, is_late=False)
        assert isinstance(error, KafkaError)
        assert error.name == "INVALID_TOPIC_EXCEPTION"

    def test_what_else_is_not_taken(self, simulation: ProducerSimulation) -> None:
        topics = simulation.sender.topics
        assert error_of(BufferFull("", 1), TOPIC, topics, is_late=False) is None
        assert isinstance(error_of(BufferFull("", 1), TOPIC, topics, is_late=True), BufferExhausted)
        too_large = error_of(RecordTooLarge("5 bytes"), TOPIC, topics, is_late=False)
        assert isinstance(too_large, KafkaError)
        assert too_large.name == "MESSAGE_TOO_LARGE"
        assert error_of(UnknownPartition("no"), TOPIC, topics, is_late=False) is not None

    def test_nothing_is_wanted_by_a_machine_at_rest(self, simulation: ProducerSimulation) -> None:
        simulation.settle()
        assert simulation.sender.is_idle
        assert simulation.sender.deadline() > simulation.now + 60
        assert simulation.sender.deadline() != NEVER, "topics are looked up again now and then"
