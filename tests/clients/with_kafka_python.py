"""Records written and read by kafka-python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from clients.samples import Row
from harness.wait import WAIT_S


@contextmanager
def producer(bootstrap: str, **settings: Any) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as sender:
        yield sender


@contextmanager
def consumer(bootstrap: str, topic: str, partitions: int = 1, **settings: Any) -> Iterator[KafkaConsumer]:
    settings = {"auto_offset_reset": "earliest"} | settings
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **settings)) as reader:
        reader.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        yield reader


def send(sender: KafkaProducer, topic: str, rows: tuple[Row, ...], partition: int = 0) -> list[int]:
    waiting = [
        sender.send(topic, row.value, row.key, list(row.headers), partition, row.timestamp_ms) for row in rows
    ]
    sender.flush(WAIT_S)
    return [future.get(WAIT_S).offset for future in waiting]


def read(reader: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for batch in reader.poll(timeout_ms=1000).values():
            records.extend(batch)
    return records


def row(record: Any) -> Row:
    return Row(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
