"""Records written and read by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from clients.samples import BASE_MS, Row
from harness.wait import WAIT_S


def producer(bootstrap: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}})


@contextmanager
def consumer(bootstrap: str, *assigned: TopicPartition, **settings: object) -> Iterator[Consumer]:
    """A consumer by assignment: librdkafka wants a group id, but never joins or commits with it."""
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    reader = Consumer(config | {k.replace("_", "."): v for k, v in settings.items()})
    reader.assign(list(assigned))
    try:
        yield reader
    finally:
        reader.close()


def read(reader: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records came"
        for message in reader.consume(count - len(messages), timeout=1):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def delivered(sender: Producer, topic: str, rows: list[Row], partition: int = 0) -> list[Message]:
    """Sends the rows and returns the delivery reports, in the order of delivery."""
    reports: list[Message] = []
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            reports.append(message)
        else:
            failures.append(error)

    for row in rows:
        sender.produce(
            topic,
            row.value,
            row.key,
            partition,
            on_delivery,
            timestamp=row.timestamp_ms,
            headers=list(row.headers),
        )
    assert sender.flush(WAIT_S) == 0
    assert not failures, failures
    return reports


def row(message: Any) -> Row:
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    return Row(message.offset(), timestamp, message.key(), message.value(), tuple(message.headers() or ()))


def plain(count: int, size: int = 10) -> list[Row]:
    return [Row(i, BASE_MS + i, b"k%d" % i, b"v" * size, ()) for i in range(count)]
