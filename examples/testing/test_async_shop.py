"""An asyncio application under test, with aiokafka: the broker has a thread and a loop of its own."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from headrace.testing import Broker


async def shout(bootstrap_servers: str, count: int) -> None:
    """Copies so many messages from `said` to `shouted`, in capital letters, all or nothing."""
    consumer = AIOKafkaConsumer(
        "said",
        bootstrap_servers=bootstrap_servers,
        group_id="shouting",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="shouting")
    async with consumer, producer, producer.transaction():
        last = None
        for _ in range(count):
            last = await consumer.getone()
            word = json.loads(last.value)["word"]
            await producer.send("shouted", json.dumps({"word": word.upper()}).encode())
        if last is not None:
            (partition,) = consumer.assignment()
            await producer.send_offsets_to_transaction({partition: last.offset + 1}, "shouting")


@pytest.mark.headrace(topics=["said", "shouted"])
def test_words_are_shouted(headrace_broker: Broker) -> None:
    headrace_broker.produce_all("said", [{"word": "hello"}, {"word": "world"}])
    asyncio.run(shout(headrace_broker.bootstrap_servers, 2))
    headrace_broker.assert_consumed("shouted", [{"word": "HELLO"}, {"word": "WORLD"}])
    headrace_broker.assert_consumed("said", [{"word": "hello"}, {"word": "world"}], group="shouting")
