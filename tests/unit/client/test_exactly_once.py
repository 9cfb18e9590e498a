"""The producer's machine against a model of a broker that loses requests, answers and leadership at random.

Whatever happens on the way, with idempotence the log ends up with every record once and in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.time import Instant
from headrace.client.batching import record_bytes
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import ConnectionLost
from headrace.client.sender import Delivered, Flight, Outcome, Sender
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from headrace.records.batch import read_header
from headrace.records.reader import read_rows

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
NOT_LEADER, TOO_LARGE, OUT_OF_ORDER = 6, 10, 45


@dataclass
class ModelBroker:
    """One log per partition that takes a batch only where its sequence goes on, and knows a repeat."""

    rows_max: int = 1000  # of one batch
    leaders: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 1))
    logs: dict[TopicPartition, list[bytes]] = field(default_factory=lambda: {at: [] for at in PARTITIONS})
    known: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)  # sequence → base offset

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="h", port=n) for n in (1, 2)],
            topics=[
                MetadataResponseTopic(
                    name="t",
                    partitions=[
                        MetadataResponsePartition(partition_index=at.partition, leader_id=leader)
                        for at, leader in self.leaders.items()
                    ],
                )
            ],
        )

    def produce(self, flight: Flight) -> ProduceResponse:
        answer = ProduceResponse(responses=[TopicProduceResponse(name="t")])
        for data in flight.request.topic_data[0].partition_data:
            at = TopicPartition("t", data.index)
            assert isinstance(data.records, bytes)
            code, offset = self._append(flight.broker, at, data.records)
            answer.responses[0].partition_responses.append(
                PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
            )
        return answer

    def _append(self, broker: int, at: TopicPartition, records: bytes) -> tuple[int, int]:
        if self.leaders[at] != broker:
            return NOT_LEADER, -1
        header = read_header(records)
        log = self.logs[at]
        if header.record_count > self.rows_max:
            return TOO_LARGE, -1
        if (at, header.base_sequence) in self.known:
            return 0, self.known[at, header.base_sequence]
        if header.base_sequence != len(log):
            return OUT_OF_ORDER, -1
        self.known[at, header.base_sequence] = len(log)
        log += [row[3] or b"" for row in read_rows(records, 0, header)]
        return 0, header.base_sequence


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 400)),
        st.tuples(st.just("send"), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["answer", "lose request", "lose answer"]), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("move leader"), st.integers(0, 2), st.integers(1, 2)),
        st.tuples(st.just("refresh"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 2000), st.just(0)),
    ),
    min_size=20,
    max_size=100,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 1000), st.sampled_from([1, 2, 1000]))
def test_every_record_arrives_once_and_in_order(
    story: list[tuple[str, int, int]], seed: int, rows_max: int
) -> None:
    broker, cluster = ModelBroker(rows_max), Cluster()
    cluster.update(broker.metadata())
    sender = Sender(
        random.Random(seed),
        acks=-1,
        codec=0,
        batch_bytes=700,
        linger_s=0.0,
        delivery_s=1e9,
        request_timeout_ms=1000,
    )
    sender.identify(5, 0)
    now = 0.0
    written: dict[TopicPartition, list[bytes]] = {at: [] for at in PARTITIONS}
    outcomes: list[Outcome] = []
    flying: list[Flight] = []

    def land(flight: Flight, fate: str) -> None:
        answer = None if fate == "lose request" else broker.produce(flight)
        if fate == "answer":
            outcomes.extend(sender.answered(Instant(now), flight, answer, cluster))
        else:
            outcomes.extend(sender.failed(Instant(now), flight, ConnectionLost("gone"), cluster))

    for step, first, second in story:
        match step:
            case "add":
                at = PARTITIONS[first]
                value = b"%06d" % len(written[at]) + b"x" * second
                written[at].append(value)
                sender.add(Instant(now), at, (0, None, value, ()), record_bytes(None, value, ()))
            case "send":
                flying += sender.departures(Instant(now), cluster)
            case "move leader":
                broker.leaders[PARTITIONS[first]] = second
            case "refresh":
                cluster.update(broker.metadata())
            case "wait":
                now += first / 1000
            case fate if flying:
                land(flying.pop(first % len(flying)), fate)

    sender.wants_flush = True
    rounds = 0
    while not sender.is_idle:
        rounds += 1
        assert rounds < 200, "the world is well again: all must leave"
        cluster.update(broker.metadata())
        flying += sender.departures(Instant(now), cluster)
        while flying:
            land(flying.pop(0), "answer")
        now += 2.0

    assert broker.logs == written
    assert all(isinstance(outcome, Delivered) for outcome in outcomes)
    assert sum(outcome.records for outcome in outcomes) == sum(map(len, written.values()))
    assert sender.unfinished_bytes == 0
