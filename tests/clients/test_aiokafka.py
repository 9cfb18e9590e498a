"""aiokafka: asyncio producer, consumer by assignment and admin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from clients.samples import BASE_MS, CODECS, SAMPLES, Row
from clients.with_aiokafka import consumer, producer, read, row, send
from harness.broker import Broker
from harness.wait import WAIT_S

MIB = 1 << 20


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * WAIT_S))


@asynccontextmanager
async def administrator(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_carries_every_kind_of_record(
    bootstrap: str, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic()

    async def story() -> None:
        async with producer(bootstrap, compression_type=None if codec == "none" else codec) as sender:
            assert await send(sender, topic, SAMPLES) == [sample.offset for sample in SAMPLES]
        async with consumer(bootstrap, topic) as reader:
            assert [row(record) for record in await read(reader, len(SAMPLES))] == list(SAMPLES)

    run(story())


@pytest.mark.parametrize("size", [1, 100, 10_000, MIB, 10 * MIB])
def test_messages_of_every_size(bootstrap: str, new_topic: Callable[..., str], size: int) -> None:
    topic = new_topic(max_message_bytes=str(12 * MIB))
    sent = tuple(Row(i, BASE_MS, None, bytes([65 + i]) * size, ()) for i in range(2))

    async def story() -> None:
        async with producer(bootstrap, max_request_size=11 * MIB) as sender:
            await send(sender, topic, sent)
        async with consumer(bootstrap, topic) as reader:
            assert [row(record) for record in await read(reader, 2)] == list(sent)

    run(story())


def test_a_message_above_the_topics_limit_is_refused(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="1000")

    async def story() -> None:
        async with producer(bootstrap) as sender:
            with pytest.raises(MessageSizeTooLargeError):
                await sender.send_and_wait(topic, b"x" * 2000)

    run(story())


@pytest.mark.parametrize(
    "settings", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}]
)
def test_acks_and_idempotence(
    bootstrap: str, new_topic: Callable[..., str], settings: dict[str, object]
) -> None:
    topic = new_topic(partitions=2)

    async def story() -> None:
        async with producer(bootstrap, **settings) as sender:
            for number in range(200):
                await sender.send(topic, b"%d" % number, partition=number % 2)
        async with consumer(bootstrap, topic, partitions=2) as reader:
            records = await read(reader, 200)
        for partition in range(2):
            values = [int(r.value) for r in records if r.partition == partition]
            assert values == list(range(partition, 200, 2))

    run(story())


def test_offsets_by_timestamp_and_ends(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with producer(bootstrap) as sender:
            await send(sender, topic, SAMPLES)
        async with consumer(bootstrap, topic) as reader:
            found = await reader.offsets_for_times({partition: BASE_MS + 1500})
            assert (found[partition].offset, found[partition].timestamp) == (2, BASE_MS + 2000)
            nothing = await reader.offsets_for_times({partition: BASE_MS + 10**9})
            assert nothing[partition] is None
            assert await reader.beginning_offsets([partition]) == {partition: 0}
            assert await reader.end_offsets([partition]) == {partition: len(SAMPLES)}

    run(story())


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", len(SAMPLES))])
def test_reset_when_the_offset_is_out_of_range(
    bootstrap: str, new_topic: Callable[..., str], reset: str, expected: int
) -> None:
    topic = new_topic()

    async def story() -> None:
        async with producer(bootstrap) as sender:
            await send(sender, topic, SAMPLES)
            async with consumer(bootstrap, topic, auto_offset_reset=reset) as reader:
                assert await reader.position(TopicPartition(topic, 0)) == expected
                await send(sender, topic, SAMPLES[:1])
                (first,) = await read(reader, 1)
                assert first.offset == expected
        async with consumer(bootstrap, topic, auto_offset_reset="none") as reader:
            reader.seek(TopicPartition(topic, 0), 500)
            with pytest.raises(OffsetOutOfRangeError):
                await reader.getone()

    run(story())


def test_a_waiting_consumer_gets_the_record_at_once(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    async def story() -> None:
        async with (
            consumer(bootstrap, topic, fetch_max_wait_ms=60_000, request_timeout_ms=61_000) as reader,
            producer(bootstrap) as sender,
        ):
            for number in range(5):
                waiting = asyncio.ensure_future(reader.getone())
                await asyncio.wait([waiting], timeout=0.05)
                assert not waiting.done()
                await sender.send_and_wait(topic, b"%d" % number)
                assert (await asyncio.wait_for(waiting, WAIT_S)).value == b"%d" % number

    run(story())


def test_a_topic_is_made_by_producing_to_it(bootstrap: str, name: str) -> None:
    async def story() -> None:
        async with producer(bootstrap) as sender:
            assert (await sender.send_and_wait(name, b"x")).offset == 0

    run(story())


def test_topics_are_created_widened_emptied_and_deleted(broker: Broker, bootstrap: str, name: str) -> None:
    async def partitions(client: AIOKafkaAdminClient) -> int:
        (described,) = await client.describe_topics([name])
        return len(described["partitions"])

    async def until(client: AIOKafkaAdminClient, count: int) -> None:
        while await partitions(client) != count:
            await asyncio.sleep(0.02)

    async def story() -> None:
        async with administrator(bootstrap) as client, producer(bootstrap) as sender:
            created = await client.create_topics(
                [NewTopic(name, 2, len(broker.node_ids), topic_configs={"retention.ms": "99000"})]
            )
            assert [error[1] for error in created.topic_errors] == [0]
            await until(client, 2)
            again = await client.create_topics([NewTopic(name, 2, len(broker.node_ids))])
            assert [error[1] for error in again.topic_errors] == [36]  # TOPIC_ALREADY_EXISTS
            await client.create_partitions({name: NewPartitions(3)})
            await until(client, 3)
            await send(sender, name, SAMPLES, partition=2)
            emptied = await client.delete_records({TopicPartition(name, 2): RecordsToDelete(before_offset=4)})
            assert emptied == {TopicPartition(name, 2): 4}
            deleted = await client.delete_topics([name])
            assert [code for _, code in deleted.topic_error_codes] == [0]
            while name in await client.list_topics():
                await asyncio.sleep(0.02)

    run(story())


def test_configs_are_described_and_replaced(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(retention_ms="99000", flush_messages="7")

    async def values(client: AIOKafkaAdminClient) -> dict[str, str]:
        (answer,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((_, _, _, _, entries),) = answer.resources
        return {entry[0]: entry[1] for entry in entries}

    async def story() -> None:
        async with administrator(bootstrap) as client:
            while (await values(client))["retention.ms"] != "99000":
                await asyncio.sleep(0.02)
            change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "55000"})
            (answer,) = await client.alter_configs([change])
            assert [resource[0] for resource in answer.resources] == [0]
            while (await values(client))["retention.ms"] != "55000":
                await asyncio.sleep(0.02)
            # AlterConfigs replaces: what it does not name goes back to the default
            assert (await values(client))["flush.messages"] == str(2**63 - 1)

    run(story())


@pytest.mark.steady
def test_the_cluster_describes_itself(broker: Broker, bootstrap: str) -> None:
    async def story() -> None:
        async with administrator(bootstrap) as client:
            described = await client.describe_cluster()
            assert [one["node_id"] for one in described["brokers"]] == broker.node_ids
            assert described["controller_id"] in broker.node_ids
            assert described["cluster_id"]

    run(story())
