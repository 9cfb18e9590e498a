"""Quotas: whether a producer and a consumer that could do much more keep theirs, and what they cost others.

A client that takes all that it can get takes in a moment what eleven windows allow, and then waits until they
are over. So three such turns are measured, from the middle of one on. Meanwhile another client sends one
record after the other, as it did before.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench import Bench, create_topic
from harness.broker import Broker
from harness.message_socket import MessageSocket
from headrace import Admin, QuotaEntity
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records.builder import build_batch

RATE = 1_000_000  # bytes per second
TURN_S = 11  # all windows, of which ten may be used at once
MEASURED_S = 3 * TURN_S
VALUE = bytes(10_000)  # so that nearly all bytes of a request are records
ALONE_S = 5
ROOM = 100  # records that a producer may have on their way: few, or it gives up on some that wait too long
LIMIT_PERCENT = 5.0
NEIGHBOUR_LIMIT = 1.5


def run(bench: Bench) -> None:
    kept = {
        kind: bench.measure(
            "quotas", f"{kind} off its quota of 1 MB/s", "%", higher_is_better=False, limit=LIMIT_PERCENT
        )
        for kind in LOADS
    }
    neighbour = bench.measure(
        "quotas",
        "p99 of another client, beside them / alone",
        "×",
        higher_is_better=False,
        limit=NEIGHBOUR_LIMIT,
    )
    with bench.brokers() as brokers:
        for broker in brokers:
            prepare(broker)

        def take(broker: Broker) -> str:
            alone = p99_ms(broker, lambda began: time.monotonic() - began < ALONE_S)
            told = []
            beside: list[float] = []
            for kind, load in LOADS.items():
                rate, p99 = beside_load(broker, load)
                off = 100 * abs(rate / RATE - 1)
                kept[kind].add(broker.name, off)
                beside.append(p99)
                told.append(f"{kind} {rate / 1e6:.3f} MB/s")
            ratio = max(beside) / alone
            neighbour.add(broker.name, ratio)
            return f"{', '.join(told)}; another client's p99 {ratio:.2f}×"

        bench.turns(brokers, "quotas", take)


def prepare(broker: Broker) -> None:
    for topic in ("greedy", "quiet"):
        create_topic(broker, topic)
    create_topic(broker, "greedy-2", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2, "linger.ms": 50})
    for _ in range(RATE * (TURN_S + MEASURED_S) * 2 // len(VALUE)):
        producer.produce("greedy", VALUE)
        producer.poll(0)
    for number in range(RATE * (TURN_S + MEASURED_S) * 2 // len(VALUE)):
        producer.produce("greedy-2", VALUE, partition=number % 2)
        producer.poll(0)
    producer.flush()
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        bounds: dict[str, float | None] = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        admin.alter_quotas({QuotaEntity(client_id="greedy"): bounds})


def beside_load(broker: Broker, load: Callable[[Broker, Callable[[int], None]], None]) -> tuple[float, float]:
    """Bytes per second of the load, and the p99 of another client meanwhile."""
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

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(TURN_S / 2)
    start = time.monotonic()
    p99 = p99_ms(broker, lambda _: time.monotonic() - start < MEASURED_S)
    end = time.monotonic()
    done.set()
    thread.join()
    return sum(size for at, size in counted if start <= at < end) / (end - start), p99


def produce(broker: Broker, count: Callable[[int], None]) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "greedy", "log_level": 2}
    producer = Producer(settings | {"linger.ms": 5, "batch.num.messages": 20})
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
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "greedy", "group.id": "greedy"}
    more = {"log_level": 2, "enable.auto.commit": False, "queued.max.messages.kbytes": 1000}
    consumer = Consumer(settings | more | {"fetch.message.max.bytes": 200_000})
    consumer.assign(assigned or [TopicPartition("greedy", 0, 0)])
    try:
        while True:
            message = consumer.poll(0.1)
            count(0 if message is None else len(message))
    finally:
        consumer.close()


LOADS: dict[str, Callable[[Broker, Callable[[int], None]], None]] = {
    "producer": produce,
    "consumer": consume,
    "producer to two partitions": produce_to_two,
    "consumer of two partitions": consume_two,
}


def p99_ms(broker: Broker, goes_on: Callable[[float], bool]) -> float:
    """Of one record after the other."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2, "linger.ms": 0})
    took: list[float] = []
    began = time.monotonic()
    while goes_on(began):
        sent = time.monotonic()
        producer.produce("quiet", b"v")
        producer.flush()
        took.append(time.monotonic() - sent)
    return 1000 * statistics.quantiles(took, n=100)[98]
