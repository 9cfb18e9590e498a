"""Reading a partition to its end, as an isolation level shows it."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from harness.wait import WAIT_S


def read_all(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes | None]:
    """The values of one partition from its beginning to what is the end at this isolation level."""
    return [value for _, value in read_pairs(bootstrap, topic, partition, isolation)]


def read_pairs(
    bootstrap: str, topic: str, partition: int, isolation: str
) -> list[tuple[bytes | None, bytes | None]]:
    """The same with keys."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "a-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,  # the end is told by an empty answer
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    try:
        pairs = []
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for message in reader.consume(1000, 0.1):
                if (error := message.error()) is None:
                    pairs.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return pairs
                else:
                    raise AssertionError(error)
        raise AssertionError(f"no end of {topic}-{partition} after {len(pairs)} records")
    finally:
        reader.close()
