"""T12's loads: a Python client sends or reads so many records of 100 bytes, in a process of its own.

    python -m benchmarks.client_loads CLIENT WORK BOOTSTRAP TOPIC COUNT

Prints records per second and CPU seconds per million records as JSON. The clock runs from the making of the
client until the last record is acknowledged or was looked at; imports are done before. Every client has its
own defaults but acks=all (and one that keeps confluent-kafka from resting), and reads one partition from its
beginning, without a group.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

VALUE = bytes(100)
PATIENCE_S = 30
BATCH = 10_000  # records that a consumer asks for at a time
ROWS_PER_TABLE = 1_000_000

Load = Callable[[str, str, int], Callable[[], None]]  # bootstrap, topic, count → the work, imports done


def confluent_send(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from confluent_kafka import Producer

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2})
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, VALUE)
                    break
                except BufferError:  # its queue is full
                    producer.poll(0.01)
        if producer.flush(PATIENCE_S):
            raise TimeoutError("not all was sent")

    return run


def confluent_read(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from confluent_kafka import Consumer, TopicPartition

    def run() -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "T12", "log_level": 2}
        # else it rests for a second whenever it has 100,000 records ahead, which are read in a tenth of that
        settings |= {"enable.auto.commit": False, "fetch.queue.backoff.ms": 0}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = count
        while left > 0:
            messages = consumer.consume(min(BATCH, left), timeout=PATIENCE_S)
            for message in messages:
                left -= len(message.value()) == len(VALUE)
            checked(messages)
        consumer.close()

    return run


def kafka_python_send(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from kafka import KafkaProducer

    def run() -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush(PATIENCE_S)
        producer.close()

    return run


def kafka_python_read(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from kafka import KafkaConsumer, TopicPartition

    def run() -> None:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        left = count
        while left > 0:
            polled = consumer.poll(PATIENCE_S * 1000, max_records=min(BATCH, left))
            for messages in polled.values():
                for message in messages:
                    left -= len(message.value) == len(VALUE)
            checked(polled)
        consumer.close()

    return run


def aiokafka_send(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()

    return on_a_loop(run)


def aiokafka_read(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
            at = TopicPartition(topic, 0)
            consumer.assign([at])
            consumer.seek(at, 0)
            left = count
            while left > 0:
                polled = await consumer.getmany(timeout_ms=PATIENCE_S * 1000, max_records=min(BATCH, left))
                for messages in polled.values():
                    for message in messages:
                        left -= len(message.value) == len(VALUE)
                checked(polled)

    return on_a_loop(run)


def headrace_send(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from headrace import Producer

    def run() -> None:
        with Producer(bootstrap) as producer:
            for _ in range(count):
                producer.send(topic, VALUE)

    return run


def headrace_send_arrow(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    import pyarrow

    from headrace import Producer

    table = pyarrow.table({"value": pyarrow.array([VALUE] * min(count, ROWS_PER_TABLE), pyarrow.binary())})

    def run() -> None:
        with Producer(bootstrap) as producer:
            for start in range(0, count, ROWS_PER_TABLE):
                producer.send_arrow(topic, table.slice(0, count - start))

    return run


def headrace_read(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from headrace import Consumer, TopicPartition

    def run() -> None:
        with Consumer(bootstrap) as consumer:
            consumer.assign({TopicPartition(topic, 0): 0})
            left = count
            while left > 0:
                messages = consumer.poll(PATIENCE_S, max_records=min(BATCH, left))
                for message in messages:
                    left -= len(message.value) == len(VALUE)
                checked(messages)

    return run


def headrace_read_arrow(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from pyarrow import compute

    from headrace import Consumer, TopicPartition

    def run() -> None:
        with Consumer(bootstrap) as consumer:
            consumer.assign({TopicPartition(topic, 0): 0})
            left = count
            while left > 0:
                table = consumer.poll_arrow(PATIENCE_S)
                size = compute.sum(compute.binary_length(table["value"])).as_py() or 0
                left -= size // len(VALUE)
                checked(table)

    return run


def headrace_aio_send(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from headrace import aio

    async def run() -> None:
        async with aio.Producer(bootstrap) as producer:
            for _ in range(count):
                await producer.send(topic, VALUE)

    return on_a_loop(run)


def headrace_aio_read(bootstrap: str, topic: str, count: int) -> Callable[[], None]:
    from headrace import TopicPartition, aio

    async def run() -> None:
        async with aio.Consumer(bootstrap) as consumer:
            consumer.assign({TopicPartition(topic, 0): 0})
            left = count
            while left > 0:
                messages = await consumer.poll(PATIENCE_S, max_records=min(BATCH, left))
                for message in messages:
                    left -= len(message.value) == len(VALUE)
                checked(messages)

    return on_a_loop(run)


LOADS: dict[tuple[str, str], Load] = {
    ("confluent-kafka", "send"): confluent_send,
    ("confluent-kafka", "read"): confluent_read,
    ("kafka-python", "send"): kafka_python_send,
    ("kafka-python", "read"): kafka_python_read,
    ("aiokafka", "send"): aiokafka_send,
    ("aiokafka", "read"): aiokafka_read,
    ("headrace", "send"): headrace_send,
    ("headrace", "send_arrow"): headrace_send_arrow,
    ("headrace", "read"): headrace_read,
    ("headrace", "read_arrow"): headrace_read_arrow,
    ("headrace.aio", "send"): headrace_aio_send,
    ("headrace.aio", "read"): headrace_aio_read,
}


def checked(polled: Any) -> None:
    if not len(polled):
        raise TimeoutError(f"nothing came for {PATIENCE_S} s")


def on_a_loop(run: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(run())


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    client, work, bootstrap, topic, count = sys.argv[1:]
    run = LOADS[client, work](bootstrap, topic, int(count))
    cpu, began = cpu_s(), time.perf_counter()
    run()
    seconds, cpu = time.perf_counter() - began, cpu_s() - cpu
    print(json.dumps({"records_per_s": int(count) / seconds, "cpu_s_per_million": cpu / int(count) * 1e6}))


if __name__ == "__main__":
    main()
