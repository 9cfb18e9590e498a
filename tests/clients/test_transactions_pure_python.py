"""Transactions with aiokafka and kafka-python, which speak other versions of the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka.admin import AdminClient

from clients.grouping import leaving, produce, receive
from clients.reading import read_all
from clients.transactions import ends, offset_of
from harness.members import AiokafkaMember, KafkaPythonMember
from harness.wait import WAIT_S, eventually

EXPECTED = [b"committed-0", b"committed-1"]

# When the coordinator dies during a transaction, kafka-python asks no other one, and waits for ever; with
# three nodes of Kafka it is the same.
waits_for_ever = pytest.mark.steady


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * WAIT_S))


@contextmanager
def kafka_python(bootstrap: str, transactional_id: str, **settings: Any) -> Iterator[kafka.KafkaProducer]:
    sender = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **settings)
    with closing(sender):
        sender.init_transactions()
        yield sender


def test_aiokafka_commits_and_aborts(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)

    async def story() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        async with producer as sender:
            for number in range(2):
                async with sender.transaction():
                    for partition in range(2):
                        await sender.send(topic, b"committed-%d" % number, partition=partition)
                await sender.begin_transaction()
                await sender.send_and_wait(topic, b"aborted", partition=number)
                await sender.abort_transaction()

    run(story())
    for partition in range(2):
        assert read_all(bootstrap, topic, partition, "read_committed") == EXPECTED
        assert len(read_all(bootstrap, topic, partition, "read_uncommitted")) == 3


@waits_for_ever
def test_kafka_python_commits_and_aborts(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    with kafka_python(bootstrap, topic) as sender:
        for number in range(2):
            sender.begin_transaction()
            for partition in range(2):
                sender.send(topic, b"committed-%d" % number, partition=partition)
            sender.commit_transaction()
            sender.begin_transaction()
            sender.send(topic, b"aborted", partition=number).get(WAIT_S)
            sender.abort_transaction()
    for partition in range(2):
        assert read_all(bootstrap, topic, partition, "read_committed") == EXPECTED
        assert len(read_all(bootstrap, topic, partition, "read_uncommitted")) == 3


def test_aiokafka_copies_offsets_with_the_records(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    place = aiokafka.TopicPartition(topic, 0)

    async def story() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        async with producer as sender:
            async with sender.transaction():
                await sender.send_offsets_to_transaction({place: 2}, topic)
            await sender.begin_transaction()
            await sender.send_offsets_to_transaction({place: 3}, topic)
            await sender.abort_transaction()

    produce(bootstrap, topic, partitions=1, per_partition=3)
    run(story())
    eventually(lambda: offset_of(admin, topic, topic, require_stable=True), 2)
    with leaving([AiokafkaMember(bootstrap, topic, [topic], isolation_level="read_committed")]) as members:
        receive(members, [b"0/2"])


@waits_for_ever
def test_kafka_python_copies_offsets_with_the_records(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    offsets = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(2, "", -1)}
    with (
        leaving([KafkaPythonMember(bootstrap, topic, [topic])]) as members,
        kafka_python(bootstrap, topic) as sender,
    ):
        receive(members, produce(bootstrap, topic, partitions=1, per_partition=3))
        of_the_member = members[0].ask(lambda client: client.group_metadata())
        for end in (sender.abort_transaction, sender.commit_transaction):
            assert offset_of(admin, topic, topic) < 0
            sender.begin_transaction()
            sender.send_offsets_to_transaction(offsets, of_the_member)
            end()
        eventually(lambda: offset_of(admin, topic, topic), 2)


def test_an_aiokafka_zombie_is_fenced(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    async def story() -> None:
        zombie = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        heir = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        async with zombie:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"of the zombie")
            async with heir:
                with pytest.raises(aiokafka.errors.ProducerFenced):
                    await zombie.commit_transaction()
                async with heir.transaction():
                    await heir.send(topic, b"of the heir")

    run(story())
    assert read_all(bootstrap, topic, 0, "read_committed") == [b"of the heir"]


@waits_for_ever
def test_a_kafka_python_zombie_is_fenced(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with kafka_python(bootstrap, topic) as zombie:
        zombie.begin_transaction()
        zombie.send(topic, b"of the zombie").get(WAIT_S)
        with kafka_python(bootstrap, topic) as heir:
            with pytest.raises((kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)):
                zombie.commit_transaction()
            heir.begin_transaction()
            heir.send(topic, b"of the heir")
            heir.commit_transaction()
    assert read_all(bootstrap, topic, 0, "read_committed") == [b"of the heir"]


@waits_for_ever
def test_read_committed_in_every_client(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with kafka_python(bootstrap, topic) as sender:
        sender.begin_transaction()
        sender.send(topic, b"committed").get(WAIT_S)
        sender.commit_transaction()
        sender.begin_transaction()
        sender.send(topic, b"aborted").get(WAIT_S)
        sender.abort_transaction()
        sender.begin_transaction()
        sender.send(topic, b"open").get(WAIT_S)
        assert ends(admin, topic) == (4, 5)
        settings = {"isolation_level": "read_committed"}
        everybody = [
            KafkaPythonMember(bootstrap, f"{topic}-1", [topic], **settings),
            AiokafkaMember(bootstrap, f"{topic}-2", [topic], **settings),
        ]
        with leaving(everybody) as members:
            for member in members:
                receive([member], [b"committed"])
            sender.commit_transaction()
            for member in members:
                receive([member], [b"committed", b"open"])
