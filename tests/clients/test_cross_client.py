"""What one client writes, every other reads as the same bytes; each codec has its own framing per client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as ConfluentPartition

from clients import test_aiokafka, test_confluent, test_kafka_python
from clients.samples import CODECS, SAMPLES, Row

Write = Callable[[str, str, str], None]
Read = Callable[[str, str, int], list[Row]]


def confluent_writes(bootstrap: str, topic: str, codec: str) -> None:
    sender = test_confluent.producer(bootstrap, compression_type=codec, linger_ms=20)
    test_confluent.delivered(sender, topic, list(SAMPLES))


def confluent_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    with test_confluent.consumer(bootstrap, ConfluentPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        return [test_confluent.row(message) for message in test_confluent.read(reader, count)]


def aiokafka_writes(bootstrap: str, topic: str, codec: str) -> None:
    async def story() -> None:
        compression = None if codec == "none" else codec
        async with test_aiokafka.producer(bootstrap, compression_type=compression, linger_ms=20) as sender:
            await test_aiokafka.send(sender, topic, SAMPLES)

    asyncio.run(story())


def aiokafka_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    async def story() -> list[Row]:
        async with test_aiokafka.consumer(bootstrap, topic) as reader:
            return [test_aiokafka.row(record) for record in await test_aiokafka.read(reader, count)]

    return asyncio.run(story())


def kafka_python_writes(bootstrap: str, topic: str, codec: str) -> None:
    compression = None if codec == "none" else codec
    with test_kafka_python.producer(bootstrap, compression_type=compression, linger_ms=20) as sender:
        test_kafka_python.send(sender, topic, SAMPLES)


def kafka_python_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    with test_kafka_python.consumer(bootstrap, topic) as reader:
        return [test_kafka_python.row(record) for record in test_kafka_python.read(reader, count)]


READERS: dict[str, Read] = {
    "confluent-kafka": confluent_reads,
    "aiokafka": aiokafka_reads,
    "kafka-python": kafka_python_reads,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(confluent_writes, id="confluent-kafka"),
        pytest.param(aiokafka_writes, id="aiokafka"),
        pytest.param(kafka_python_writes, id="kafka-python"),
    ],
)
def test_all_read_what_one_writes(
    bootstrap: str, new_topic: Callable[..., str], write: Write, codec: str
) -> None:
    topic = new_topic()
    write(bootstrap, topic, codec)
    for reader, read in READERS.items():
        assert read(bootstrap, topic, len(SAMPLES)) == list(SAMPLES), reader


def test_codecs_mix_in_one_partition(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for write in (confluent_writes, aiokafka_writes, kafka_python_writes):
        for codec in CODECS:
            write(bootstrap, topic, codec)
    rounds = 3 * len(CODECS)
    expected = [
        sample._replace(offset=sample.offset + turn * len(SAMPLES))
        for turn in range(rounds)
        for sample in SAMPLES
    ]
    for reader, read in READERS.items():
        assert read(bootstrap, topic, len(expected)) == expected, reader
