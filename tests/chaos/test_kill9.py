"""kill -9 under load: an idempotent producer neither loses nor doubles a record over twenty restarts.

The broker is killed whenever another slice of records has been acknowledged, and started again on the same
port and data, while the producer keeps its queue full. Then the whole topic is read back and judged.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.broker import Broker
from harness.wait import WAIT_S

KILLS = 20
PARTITIONS = 3
KEYS = 30
ACKNOWLEDGED_BETWEEN_KILLS = 1000


class Load:
    """Sends numbered records, key by key in turn, until told to stop; remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[int, tuple[int, int]] = {}  # number → (partition, offset)
        self.failures: list[KafkaError] = []
        self.sent = 0
        self._progress = threading.Condition()
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,  # many requests in flight when the kill comes
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "message.timeout.ms": 0,  # none: a slow restart must not look like a loss
                "queue.buffering.max.messages": 2000,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Returns once `count` records in all have been acknowledged."""
        with self._progress:
            arrived = self._progress.wait_for(
                lambda: len(self.acknowledged) >= count or bool(self.failures), WAIT_S
            )
        assert not self.failures, self.failures
        assert arrived, f"{len(self.acknowledged)} of {count} records were acknowledged"

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0
        assert not self.failures, self.failures

    def _run(self) -> None:
        while not self._stopping.is_set():
            number = self.sent
            try:
                self._producer.produce(
                    self.topic, b"%d" % number, b"key-%d" % (number % KEYS), on_delivery=self._on_delivery
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent += 1
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        with self._progress:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged[int(message.value())] = (message.partition(), message.offset())
            self._progress.notify_all()


def read_all(bootstrap: str, topic: str) -> list[Any]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
        ends = [reader.get_watermark_offsets(partition, timeout=WAIT_S)[1] for partition in partitions]
        reader.assign(partitions)
        messages: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        while len(messages) < sum(ends) and time.monotonic() < deadline:
            for message in reader.consume(10_000, timeout=1):
                assert message.error() is None, message.error()
                messages.append(message)
        return messages
    finally:
        reader.close()


def test_nothing_is_lost_or_doubled_over_twenty_kills(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker().start()
    topic = "chaos"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=WAIT_S)[topic].result(WAIT_S)

    load = Load(broker.bootstrap, topic)
    load.start()
    for _ in range(KILLS):
        load.wait_for(len(load.acknowledged) + ACKNOWLEDGED_BETWEEN_KILLS)
        broker.kill()
        broker.start()
    load.wait_for(len(load.acknowledged) + ACKNOWLEDGED_BETWEEN_KILLS)
    load.stop()

    messages = read_all(broker.bootstrap, topic)
    offsets: dict[int, list[int]] = defaultdict(list)
    numbers_of_key: dict[bytes, list[int]] = defaultdict(list)
    place_of: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for message in messages:
        offsets[message.partition()].append(message.offset())
        numbers_of_key[message.key()].append(int(message.value()))
        place_of[int(message.value())].append((message.partition(), message.offset()))

    assert len(load.acknowledged) == load.sent
    assert {n: place_of.get(n) for n in load.acknowledged} == {n: [at] for n, at in load.acknowledged.items()}
    assert set(place_of) == set(range(load.sent)), "a record that nobody sent"
    for partition, seen in offsets.items():
        assert seen == list(range(len(seen))), f"offsets of partition {partition} have gaps"
    for key, numbers in numbers_of_key.items():
        assert numbers == sorted(numbers), f"records of {key!r} are out of order"
