"""Each client library writes all samples, and reads as many records as it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as ConfluentPartition

from clients import with_aiokafka, with_confluent, with_kafka_python
from clients.samples import SAMPLES, Row

Write = Callable[[str, str, str], None]
Read = Callable[[str, str, int], list[Row]]


def confluent_writes(bootstrap: str, topic: str, codec: str) -> None:
    sender = with_confluent.producer(bootstrap, compression_type=codec, linger_ms=20)
    with_confluent.delivered(sender, topic, list(SAMPLES))


def confluent_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    with with_confluent.consumer(bootstrap, ConfluentPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        return [with_confluent.row(message) for message in with_confluent.read(reader, count)]


def aiokafka_writes(bootstrap: str, topic: str, codec: str) -> None:
    async def story() -> None:
        compression = None if codec == "none" else codec
        async with with_aiokafka.producer(bootstrap, compression_type=compression, linger_ms=20) as sender:
            await with_aiokafka.send(sender, topic, SAMPLES)

    asyncio.run(story())


def aiokafka_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    async def story() -> list[Row]:
        async with with_aiokafka.consumer(bootstrap, topic) as reader:
            return [with_aiokafka.row(record) for record in await with_aiokafka.read(reader, count)]

    return asyncio.run(story())


def kafka_python_writes(bootstrap: str, topic: str, codec: str) -> None:
    compression = None if codec == "none" else codec
    with with_kafka_python.producer(bootstrap, compression_type=compression, linger_ms=20) as sender:
        with_kafka_python.send(sender, topic, SAMPLES)


def kafka_python_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    with with_kafka_python.consumer(bootstrap, topic) as reader:
        return [with_kafka_python.row(record) for record in with_kafka_python.read(reader, count)]


READERS: dict[str, Read] = {
    "confluent-kafka": confluent_reads,
    "aiokafka": aiokafka_reads,
    "kafka-python": kafka_python_reads,
}
