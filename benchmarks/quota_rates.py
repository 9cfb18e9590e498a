"""Quotas: whether a producer and a consumer that could do much more keep theirs, and what they cost others.

A client that takes all that it can get takes in a moment what ten windows allow, and then waits until they
are over: for eleven or twelve seconds, as its throttle times fall. So what it gets in half a minute depends
on when that begins, by up to a third. The rate here is the mean over all spans of three turns that begin
within a fourth.

Meanwhile a bystander writes one record after the other to the same broker, and another one to a second broker
of the same kind that has no other clients: what the machine does hits both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench import Bench, create_topic
from benchmarks.bursts import mean_rate
from benchmarks.bystander_bench import p99
from chaos.bystander import TOPIC as BYSTANDERS_TOPIC
from chaos.bystander import Bystander
from harness.broker import Broker
from harness.message_socket import MessageSocket
from headrace import Admin, QuotaEntity
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch

RATE = 1_000_000  # bytes per second
TURN_S = 12  # all windows, of which ten may be used at once, and what the last throttle is too long
SPAN_S = 3 * 11
VALUE = bytes(10_000)  # so that nearly all bytes of a request are records
BATCH = 20  # records: a fetch returns whole batches, and these are a fifth of a second
ALONE_S = 5
ROOM = 100  # records that a producer may have on their way: few, or it gives up on some that wait too long
LIMIT_PERCENT = 5.0
NEIGHBOUR_LIMIT = 1.5

Load = Callable[[Broker, Callable[[int], None]], None]


def run(bench: Bench) -> None:
    kept = {
        kind: bench.measure(
            "quotas", f"{kind} off its quota of 1 MB/s", "%", higher_is_better=False, limit=LIMIT_PERCENT
        )
        for kind in LOADS
    }
    to_other = bench.measure(
        "quotas",
        "p99 of another client, beside them / at another broker",
        "×",
        higher_is_better=False,
        limit=NEIGHBOUR_LIMIT,
    )
    to_alone = bench.measure(
        "quotas", "p99 of another client, beside them / alone", "×", higher_is_better=False
    )
    with ExitStack() as running:
        brokers = running.enter_context(bench.brokers())
        watched: dict[str, Bystanders] = {}
        for broker in brokers:
            prepare(broker)
            quiet = running.enter_context(bench.only(broker.name))
            create_topic(quiet, BYSTANDERS_TOPIC)
            watched[broker.name] = running.enter_context(Bystanders(broker, quiet))

        def take(broker: Broker) -> str:
            told = []
            ratios: list[tuple[float, float]] = []
            bystanders = watched[broker.name]
            for kind, load in LOADS.items():
                bystanders.begin()
                time.sleep(ALONE_S)
                alone_ms, _ = bystanders.p99s_ms()
                bystanders.begin()
                got = rate(broker, load)
                here_ms, there_ms = bystanders.p99s_ms()
                kept[kind].add(broker.name, 100 * abs(got / RATE - 1))
                ratios.append((here_ms / there_ms, here_ms / alone_ms))
                others = f"{there_ms:.2f} at another broker, {alone_ms:.2f} alone"
                told.append(f"{kind} {got / 1e6:.3f} MB/s, another client's p99 {here_ms:.2f} ms ({others})")
            to_other.add(broker.name, max(ratio for ratio, _ in ratios))
            to_alone.add(broker.name, max(ratio for _, ratio in ratios))
            return "; ".join(told)

        bench.turns(brokers, "quotas", take)


def prepare(broker: Broker) -> None:
    create_topic(broker, BYSTANDERS_TOPIC)
    create_topic(broker, "greedy")
    create_topic(broker, "greedy-2", 2)
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 2, "linger.ms": 50}
    producer = Producer(settings | {"batch.num.messages": BATCH})
    count = RATE * 2 * (TURN_S + SPAN_S) // len(VALUE)
    for number in range(count):
        producer.produce("greedy", VALUE)
        producer.produce("greedy-2", VALUE, partition=number // BATCH % 2)
        producer.poll(0)
    producer.flush()
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        bounds: dict[str, float | None] = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        admin.alter_quotas({QuotaEntity(client_id="greedy"): bounds})


class Bystanders:
    """One at the broker that is measured, and one at another."""

    def __init__(self, here: Broker, there: Broker) -> None:
        self._both = [Bystander(broker.port) for broker in (here, there)]

    def __enter__(self) -> Bystanders:
        for bystander in self._both:
            bystander.rounds(300)  # until everything is warm
        return self

    def __exit__(self, *_: object) -> None:
        for bystander in self._both:
            bystander.stop()

    def begin(self) -> None:
        for bystander in self._both:
            bystander.produces(0)

    def p99s_ms(self) -> tuple[float, float]:
        """Of their writes since then."""
        here, there = (p99(bystander.produces(1)) for bystander in self._both)
        return here, there


def rate(broker: Broker, load: Load) -> float:
    """Bytes per second of the load."""
    done = threading.Event()
    counted: list[tuple[float, int]] = []

    def count(size: int) -> None:
        counted.append((time.monotonic(), size))
        if done.is_set():
            raise StopIteration

    def work() -> None:
        try:
            load(broker, count)
        except StopIteration:
            pass

    start = time.monotonic()
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(TURN_S / 2 + TURN_S + SPAN_S)
    done.set()
    thread.join()
    return mean_rate(counted, start + TURN_S / 2, SPAN_S, TURN_S)


def produce(broker: Broker, count: Callable[[int], None]) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "greedy", "log_level": 2}
    producer = Producer(settings | {"linger.ms": 5, "batch.num.messages": BATCH})
    sizes: list[int] = []
    while True:
        if len(producer) < ROOM:
            producer.produce("greedy", VALUE, on_delivery=lambda _, message: sizes.append(len(message)))
        producer.poll(0 if len(producer) < ROOM else 0.01)
        while sizes:
            count(sizes.pop())


def produce_to_two(broker: Broker, count: Callable[[int], None]) -> None:
    """With requests for two partitions, which take no fast path in Headrace."""
    batch = build_batch([(time.time_ns() // 1_000_000, None, VALUE, ())] * 10)
    data = [PartitionProduceData(index=index, records=batch) for index in range(2)]
    topic = TopicProduceData(name="greedy-2", partition_data=data)
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
    client = MessageSocket(broker.port)
    try:
        while True:
            answer = client.ask("greedy", request, 9)
            assert not any(one.error_code for one in answer.responses[0].partition_responses), answer
            count(2 * 10 * len(VALUE))
    finally:
        client.close()


def consume_two(broker: Broker, count: Callable[[int], None]) -> None:
    """The same for fetches."""
    consume(broker, count, [TopicPartition("greedy-2", index, 0) for index in range(2)])


def consume(
    broker: Broker, count: Callable[[int], None], assigned: list[TopicPartition] | None = None
) -> None:
    """With the client's own limits: smaller ones have it wait for a second when its queue is full."""
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "greedy", "group.id": "greedy"}
    consumer = Consumer(settings | {"log_level": 2, "enable.auto.commit": False})
    consumer.assign(assigned or [TopicPartition("greedy", 0, 0)])
    try:
        while True:
            message = consumer.poll(0.1)
            count(0 if message is None else len(message))
    finally:
        consumer.close()


LOADS: dict[str, Load] = {
    "producer": produce,
    "consumer": consume,
    "producer to two partitions": produce_to_two,
    "consumer of two partitions": consume_two,
}
