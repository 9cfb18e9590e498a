"""Records written and read by aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from clients.samples import Row
from harness.wait import WAIT_S


@asynccontextmanager
async def producer(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    """With acks=all unless told otherwise: by aiokafka's default a test may read before followers have it."""
    settings = {"acks": "all"} | settings
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as sender:
        yield sender


@asynccontextmanager
async def consumer(
    bootstrap: str, topic: str, partitions: int = 1, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {"auto_offset_reset": "earliest"} | settings
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **settings)
    await reader.start()
    reader.assign([TopicPartition(topic, partition) for partition in range(partitions)])
    try:
        yield reader
    finally:
        await reader.stop()


async def send(sender: AIOKafkaProducer, topic: str, rows: tuple[Row, ...], partition: int = 0) -> list[int]:
    waiting = [
        await sender.send(topic, row.value, row.key, partition, row.timestamp_ms, list(row.headers))
        for row in rows
    ]
    return [(await one).offset for one in waiting]


async def read(reader: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    return [await asyncio.wait_for(reader.getone(), WAIT_S) for _ in range(count)]


def row(record: ConsumerRecord) -> Row:
    return Row(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
