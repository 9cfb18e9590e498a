"""The producer's machine: batches leave when they are full or old, in order, and none is lost track of."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headrace.base.time import NEVER, Duration, Instant
from headrace.client.batching import Waiting, record_bytes
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import ConnectionLost, KafkaError, RecordLost
from headrace.client.sender import Delivered, Flight, Outcome, Sender, Undelivered
from headrace.protocol.messages.metadata import MetadataResponse
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.records.batch import HEADER_BYTES, read_header
from headrace.records.builder import build_batch
from headrace.records.reader import read_rows

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LINGER_S = 0.5
DELIVERY_S = 100.0


@pytest.fixture
def sender(dice: random.Random) -> Sender:
    return Sender(
        dice,
        acks=-1,
        codec=0,
        batch_bytes=1000,
        linger_s=LINGER_S,
        delivery_s=DELIVERY_S,
        request_timeout_ms=30_000,
    )


def add(sender: Sender, now: float, at: TopicPartition, *values: bytes) -> None:
    for value in values:
        sender.add(Instant(now), at, (1, None, value, ()), record_bytes(None, value, ()))


def carried(flight: Flight) -> dict[TopicPartition, list[bytes | None]]:
    found: dict[TopicPartition, list[bytes | None]] = {}
    for topic in flight.request.topic_data:
        for data in topic.partition_data:
            assert isinstance(data.records, bytes)
            rows = read_rows(data.records, 0, read_header(data.records))
            found[TopicPartition(topic.name, data.index)] = [row[3] for row in rows]
    return found


def answer(errors: dict[TopicPartition, int], base_offset: int = 40) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=at.topic,
                partition_responses=[
                    PartitionProduceResponse(index=at.partition, error_code=code, base_offset=base_offset)
                ],
            )
            for at, code in errors.items()
        ]
    )


class TestBatching:
    def test_a_batch_never_exceeds_its_bound(self) -> None:
        """The size is an upper bound of what is encoded, whatever the record holds."""
        dice = random.Random(3)
        for _ in range(200):
            key = None if dice.random() < 0.3 else dice.randbytes(dice.randrange(300))
            value = None if dice.random() < 0.3 else dice.randbytes(dice.randrange(300))
            headers = tuple(("ü" * dice.randrange(9), dice.randbytes(4)) for _ in range(dice.randrange(3)))
            row = (dice.randrange(1 << 41), key, value, headers)
            base = (dice.randrange(1 << 41), None, None, ())
            grown = len(build_batch([base, row])) - len(build_batch([base]))
            assert grown <= record_bytes(key, value, headers)

    def test_the_next_record_that_does_not_fit_opens_a_new_batch(self) -> None:
        waiting = Waiting(batch_bytes=HEADER_BYTES + 100, linger_s=Duration(1), delivery_s=Duration(9))
        opened = [waiting.add(Instant(0.0), (0, None, b"", ()), 50) for _ in range(5)]
        assert opened == [True, False, True, False, True]
        assert waiting.ready_at() == 0.0

    def test_a_record_larger_than_a_batch_travels_alone(self) -> None:
        waiting = Waiting(batch_bytes=100, linger_s=Duration(1), delivery_s=Duration(9))
        waiting.add(Instant(0.0), (0, None, b"", ()), 5000)
        waiting.add(Instant(0.0), (0, None, b"", ()), 10)
        assert [len(batch.rows) for batch in waiting.batches] == [1, 1]


class TestDepartures:
    def test_records_linger_and_then_leave_together(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 10.0, FIRST, b"a")
        add(sender, 10.2, FIRST, b"b")
        assert sender.departures(Instant(10.3), cluster) == []
        assert sender.deadline() == 10.0 + LINGER_S
        (flight,) = sender.departures(Instant(10.5), cluster)
        assert flight.broker == 1
        assert carried(flight) == {FIRST: [b"a", b"b"]}
        assert (flight.request.acks, flight.request.timeout_ms) == (-1, 30_000)
        assert sender.deadline() == NEVER

    def test_a_full_batch_does_not_wait(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 10.0, FIRST, b"x" * 600, b"y" * 600)
        (flight,) = sender.departures(Instant(10.0), cluster)
        assert carried(flight) == {FIRST: [b"x" * 600]}

    def test_a_flush_makes_everything_leave_at_once(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 10.0, FIRST, b"a")
        sender.wants_flush = True
        assert len(sender.departures(Instant(10.0), cluster)) == 1

    def test_each_leader_gets_its_partitions(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a")
        add(sender, 0.0, SECOND, b"b")
        flights = sender.departures(Instant(1.0), cluster)
        assert {flight.broker: carried(flight) for flight in flights} == {
            1: {FIRST: [b"a"]},
            2: {SECOND: [b"b"]},
        }

    def test_one_batch_of_a_partition_is_in_flight_at_a_time(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"x" * 600, b"y" * 600)
        (flight,) = sender.departures(Instant(1.0), cluster)
        assert sender.departures(Instant(9.0), cluster) == []
        sender.answered(Instant(9.0), flight, answer({FIRST: 0}), cluster)
        (second,) = sender.departures(Instant(9.0), cluster)
        assert carried(second) == {FIRST: [b"y" * 600]}

    def test_a_partition_without_a_leader_waits_and_its_topic_is_asked_for(
        self, sender: Sender, cluster: Cluster, told: Callable[..., MetadataResponse]
    ) -> None:
        cluster.update(told(-1, 2))
        add(sender, 0.0, FIRST, b"a")
        assert sender.departures(Instant(1.0), cluster) == []
        assert cluster.stale == {"orders"}
        cluster.update(told(2, 2))
        assert [flight.broker for flight in sender.departures(Instant(1.0), cluster)] == [2]

    def test_without_topic_ids_the_newest_versions_are_not_used(
        self, sender: Sender, cluster: Cluster
    ) -> None:
        cluster.topics["orders"].topic_id = bytes(16)
        add(sender, 0.0, FIRST, b"a")
        (flight,) = sender.departures(Instant(1.0), cluster)
        assert flight.version_max == 12


class TestOutcomes:
    def departed(self, sender: Sender, cluster: Cluster, now: float = 1.0) -> Flight:
        (flight,) = sender.departures(Instant(now), cluster)
        return flight

    def test_delivered(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a", b"b")
        flight = self.departed(sender, cluster)
        outcomes = sender.answered(Instant(2.0), flight, answer({FIRST: 0}, 40), cluster)
        assert outcomes == [Delivered(FIRST, 40, 2, Instant(0.0))]
        assert sender.is_idle
        assert sender.unfinished_bytes == 0

    def test_an_answer_by_topic_id(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        told = answer({FIRST: 0})
        told.responses[0].name, told.responses[0].topic_id = "", cluster.topics["orders"].topic_id
        assert [type(outcome) for outcome in sender.answered(Instant(2.0), flight, told, cluster)] == [
            Delivered
        ]

    def test_acks_0_counts_as_delivered_when_it_has_left(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        assert sender.answered(Instant(2.0), flight, None, cluster) == [Delivered(FIRST, -1, 1, Instant(0.0))]

    def test_a_moved_leader_is_found_and_the_same_bytes_are_sent_again(
        self, sender: Sender, cluster: Cluster, told: Callable[..., MetadataResponse]
    ) -> None:
        sender.identify(77, 0)
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        assert sender.answered(Instant(2.0), flight, answer({FIRST: 6}), cluster) == []
        assert cluster.stale == {"orders"}
        assert sender.departures(Instant(3.0), cluster) == []
        cluster.update(told(2, 2))
        again = self.departed(sender, cluster, 3.0)
        assert again.broker == 2
        assert again.request.topic_data == flight.request.topic_data

    def test_a_retry_goes_before_what_was_written_later(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"x" * 600, b"y" * 600)
        flight = self.departed(sender, cluster)
        assert sender.failed(Instant(2.0), flight, ConnectionLost("gone"), cluster) == []
        cluster.stale.clear()
        assert carried(self.departed(sender, cluster, 5.0)) == {FIRST: [b"x" * 600]}

    def test_sequences_run_on_and_a_retry_keeps_its_own(self, sender: Sender, cluster: Cluster) -> None:
        sender.identify(77, 5)

        def header_of(flight: Flight) -> tuple[int, int, int]:
            records = flight.request.topic_data[0].partition_data[0].records
            assert isinstance(records, bytes)
            header = read_header(records)
            return header.producer_id, header.producer_epoch, header.base_sequence

        add(sender, 0.0, FIRST, b"a", b"b", b"c")
        first = self.departed(sender, cluster)
        assert header_of(first) == (77, 5, 0)
        sender.failed(Instant(1.0), first, ConnectionLost("gone"), cluster)
        add(sender, 1.0, FIRST, b"x" * 999)
        cluster.stale.clear()
        again = self.departed(sender, cluster, 3.0)
        assert header_of(again) == (77, 5, 0)
        sender.answered(Instant(3.0), again, answer({FIRST: 0}), cluster)
        assert header_of(self.departed(sender, cluster, 9.0)) == (77, 5, 3)

    def test_a_batch_that_was_sent_once_takes_no_more_records(self, sender: Sender, cluster: Cluster) -> None:
        """The broker may have it already: what joined it now would be lost as part of a repeat."""
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        sender.failed(Instant(1.0), flight, ConnectionLost("gone"), cluster)
        add(sender, 1.0, FIRST, b"b")
        cluster.stale.clear()
        again = self.departed(sender, cluster, 5.0)
        assert carried(again) == {FIRST: [b"a"]}
        (outcome,) = sender.answered(Instant(5.0), again, answer({FIRST: 0}), cluster)
        assert outcome == Delivered(FIRST, 40, 1, Instant(0.0))
        assert carried(self.departed(sender, cluster, 9.0)) == {FIRST: [b"b"]}

    def test_a_repeat_that_the_broker_knows_is_a_delivery(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        (outcome,) = sender.answered(Instant(2.0), flight, answer({FIRST: 46}), cluster)
        assert isinstance(outcome, Delivered)

    def test_a_refusal_is_told_at_once(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        (outcome,) = sender.answered(Instant(2.0), flight, answer({FIRST: 10}), cluster)
        assert isinstance(outcome, Undelivered)
        assert isinstance(outcome.error, KafkaError)
        assert outcome.error.name == "MESSAGE_TOO_LARGE"
        assert sender.is_idle

    def test_a_batch_that_is_too_large_is_sent_in_halves(self, sender: Sender, cluster: Cluster) -> None:
        """The topic may allow less than we gather; only a record that is too large alone is refused."""
        sender.identify(77, 0)
        add(sender, 0.0, FIRST, b"a", b"b", b"c")
        bytes_before = sender.unfinished_bytes
        flight = self.departed(sender, cluster)
        assert sender.answered(Instant(1.0), flight, answer({FIRST: 10}), cluster) == []
        assert sender.unfinished_bytes == bytes_before
        add(sender, 1.0, FIRST, b"d")
        seen = []
        for _ in range(3):
            flight = self.departed(sender, cluster, 9.0)
            records = flight.request.topic_data[0].partition_data[0].records
            assert isinstance(records, bytes)
            seen.append((read_header(records).base_sequence, carried(flight)[FIRST]))
            sender.answered(Instant(9.0), flight, answer({FIRST: 0}), cluster)
        assert seen == [(0, [b"a"]), (1, [b"b", b"c"]), (3, [b"d"])]
        assert sender.is_idle
        assert sender.unfinished_bytes == 0

    def test_retries_end_at_the_delivery_deadline(self, sender: Sender, cluster: Cluster) -> None:
        add(sender, 0.0, FIRST, b"a")
        now = 1.0
        outcomes: list[Outcome] = []
        tries = 0
        while not outcomes:
            flight = self.departed(sender, cluster, now)
            outcomes = sender.failed(Instant(now), flight, ConnectionLost("gone"), cluster)
            cluster.stale.clear()
            now = max(now, sender.deadline() if sender.deadline() != NEVER else now)
            tries += 1
        assert now >= DELIVERY_S - 2
        assert tries > 10
        (outcome,) = outcomes
        assert isinstance(outcome, Undelivered)
        assert isinstance(outcome.error, RecordLost)
        assert "gone" in str(outcome.error)

    def test_what_never_finds_a_leader_expires(
        self, sender: Sender, cluster: Cluster, told: Callable[..., MetadataResponse]
    ) -> None:
        cluster.update(told(-1, -1))
        add(sender, 0.0, FIRST, b"a")
        assert sender.expire(Instant(DELIVERY_S - 1)) == []
        (outcome,) = sender.expire(Instant(DELIVERY_S))
        assert isinstance(outcome, Undelivered)
        assert sender.is_idle
        assert sender.unfinished_bytes == 0

    def test_a_partition_that_the_answer_leaves_out_is_not_forgotten(
        self, sender: Sender, cluster: Cluster
    ) -> None:
        add(sender, 0.0, FIRST, b"a")
        flight = self.departed(sender, cluster)
        (outcome,) = sender.answered(Instant(2.0), flight, ProduceResponse(), cluster)
        assert isinstance(outcome, Undelivered)
