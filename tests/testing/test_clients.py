"""Any Kafka client works with a broker under test: the pure-Python ones too, in the test's own process."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from harness.kafka_python_sockets import close_abandoned_sockets
from harness.wait import WAIT_S
from headrace.testing import Broker

close_abandoned_sockets()


def test_kafka_python(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")
    producer = KafkaProducer(bootstrap_servers=headrace_broker.bootstrap_servers)
    producer.send("orders", b"v", key=b"k").get(WAIT_S)
    producer.close()
    headrace_broker.assert_consumed("orders", [("k", "v")])
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=headrace_broker.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    message = next(consumer)
    assert (message.key, message.value) == (b"k", b"v")
    consumer.commit()
    consumer.close()
    headrace_broker.assert_consumed("orders", [("k", "v")], group="readers")


def test_aiokafka_in_a_loop_of_the_tests_own(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")

    async def round_trip() -> bytes | None:
        bootstrap = headrace_broker.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait("orders", b"v", key=b"k")
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
        )
        async with consumer:
            message = await asyncio.wait_for(consumer.getone(), WAIT_S)
            await consumer.commit()
            value: bytes | None = message.value
            return value

    assert asyncio.run(round_trip()) == b"v"
    headrace_broker.assert_consumed("orders", ["v"], group="readers")


def test_aiokafka_survives_a_restart_of_the_broker(headrace_broker: Broker) -> None:
    headrace_broker.create_topic("orders")

    async def two_sends() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=headrace_broker.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=10
        )
        async with producer:
            await producer.send_and_wait("orders", b"before")
            headrace_broker.faults.restart()
            await producer.send_and_wait("orders", b"after")

    asyncio.run(two_sends())
    headrace_broker.assert_consumed("orders", ["before", "after"])


@pytest.mark.headrace(process=True)
def test_a_broker_beside_the_test_serves_them_as_well(headrace_broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=headrace_broker.bootstrap_servers)
    producer.send("orders", b"v").get(WAIT_S)
    producer.close()
    headrace_broker.assert_consumed("orders", ["v"])
