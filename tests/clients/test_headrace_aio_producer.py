"""headrace.aio.Producer: the same producer on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow
import pytest

import headrace
import headrace.aio
from clients.every_client import READERS
from clients.reading import read_all
from clients.samples import CODECS, SAMPLES
from harness.broker import Broker
from harness.wait import WAIT_S


@pytest.mark.parametrize("codec", CODECS)
def test_all_clients_read_what_it_writes(bootstrap: str, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic()

    async def story() -> None:
        async with headrace.aio.Producer(bootstrap, compression_type=codec, linger_ms=20) as producer:
            deliveries = [
                await producer.send(
                    topic, row.value, row.key, timestamp_ms=row.timestamp_ms, headers=row.headers
                )
                for row in SAMPLES
            ]
            assert [(await delivery).offset for delivery in deliveries] == [row.offset for row in SAMPLES]

    asyncio.run(story())
    for reader, read in READERS.items():
        assert read(bootstrap, topic, len(SAMPLES)) == list(SAMPLES), reader


def test_many_tasks_share_a_producer(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)

    async def story() -> None:
        async with headrace.aio.Producer(bootstrap, linger_ms=1) as producer:
            found = await asyncio.gather(
                *(
                    producer.send_and_wait(topic, b"%d" % number, partition=number % 3)
                    for number in range(999)
                )
            )
            assert sorted((each.partition, each.offset) for each in found) == [
                (partition, offset) for partition in range(3) for offset in range(333)
            ]
            assert await producer.partitions_for(topic) == [0, 1, 2]

    asyncio.run(story())


def test_transactions(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    async def story() -> None:
        async with headrace.aio.Producer(bootstrap, transactional_id=topic) as producer:
            for number in range(4):
                try:
                    async with producer.transaction():
                        await producer.send(topic, b"%d" % number)
                        await producer.send_offsets({(topic, 0): number}, f"{topic}-group")
                        if number == 2:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
            with pytest.raises(headrace.OutsideTransaction):
                await producer.send(topic, b"v")

    asyncio.run(story())
    assert read_all(bootstrap, topic, 0, "read_committed") == [b"0", b"1", b"3"]


def test_tables(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    values = [f"{number:05}" for number in range(30_000)]

    async def story() -> headrace.TableMetadata:
        async with headrace.aio.Producer(bootstrap, buffer_memory=200_000) as producer:
            return await (await producer.send_arrow(topic, pyarrow.table({"value": values})))

    assert asyncio.run(story()).partitions == {0: headrace.PartitionRows(30_000, 0, 29_999)}
    assert read_all(bootstrap, topic, 0, "read_uncommitted") == [value.encode() for value in values]


@pytest.mark.steady
def test_a_broker_that_stands_still_fills_the_buffer(
    broker: Broker, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()

    async def story() -> None:
        async with headrace.aio.Producer(bootstrap, buffer_memory=100_000, max_block_ms=100) as producer:
            await producer.send_and_wait(topic, b"first")
            broker.pause()
            try:
                sent: list[headrace.Delivery] = []

                async def send_many() -> None:
                    for _ in range(1000):
                        sent.append(await producer.send(topic, b"x" * 1000))

                with pytest.raises(headrace.BufferExhausted):
                    await send_many()
                with pytest.raises(headrace.TimedOut):
                    await producer.flush(timeout=0.01)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(_result(sent[0]), 0.01)
            finally:
                broker.go_on()
            await producer.flush(WAIT_S)
            assert [(await delivery).offset for delivery in sent] == list(range(1, len(sent) + 1))

    asyncio.run(story())


async def _result(delivery: headrace.Delivery) -> headrace.RecordMetadata:
    return await delivery
