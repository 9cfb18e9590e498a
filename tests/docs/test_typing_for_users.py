"""A program that uses the client is checked by mypy --strict, and a mistake in it is found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio

from headrace import (
    Admin,
    Consumer,
    Delivery,
    KafkaError,
    Message,
    NewTopic,
    OffsetAt,
    Producer,
    RecordMetadata,
    TopicPartition,
    aio,
)


def told(metadata: RecordMetadata) -> None:
    print(metadata.topic, metadata.partition, metadata.offset)


def produce(servers: str) -> RecordMetadata:
    with Producer(servers, linger_ms=20, compression_type="zstd") as producer:
        delivery: Delivery = producer.send("orders", b"tea", key="7", headers={"trace": b"1"})
        delivery.add_callback(told).add_errback(print)
        with producer.transaction():
            producer.send_offsets({("orders", 0): 3}, "group")
        producer.flush(timeout=1.5)
        return delivery.get(timeout=30)


def consume(servers: str) -> list[Message]:
    with Consumer({"bootstrap.servers": servers}, group_id="billing") as consumer:
        consumer.subscribe(["orders"], on_assign=lambda consumer, partitions: None)
        messages = consumer.poll(timeout=1.0, max_records=10)
        position: int = consumer.position(("orders", 0))
        consumer.seek(TopicPartition("orders", 0), position)
        consumer.commit()
        for message in consumer:
            print(message.offset, message.key, message.value, message.headers)
            break
        return messages


def administer(servers: str) -> int | None:
    with Admin(servers) as admin:
        admin.create_topics(["clicks", NewTopic("views", partitions=3)])
        try:
            admin.delete_topic("gone")
        except KafkaError as error:
            print(error.name, error.code, error.is_retriable, error.advice)
        return admin.list_offsets({("orders", 0): OffsetAt.LATEST})[TopicPartition("orders", 0)].offset


async def both(servers: str) -> None:
    async with aio.Producer(servers) as producer, aio.Consumer(servers) as consumer:
        metadata: RecordMetadata = await producer.send_and_wait("orders", b"tea")
        consumer.assign({("orders", metadata.partition): metadata.offset})
        async for message in consumer:
            print(message.value)
            break


asyncio.run(both("localhost:9092"))
"""


def checked(program: str, place: Path) -> str:
    path = place / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=110).stdout


def test_a_right_program_passes(tmp_path: Path) -> None:
    assert checked(PROGRAM, tmp_path).startswith("Success")


def test_a_wrong_one_does_not(tmp_path: Path) -> None:
    wrong = PROGRAM.replace("producer.flush(timeout=1.5)", 'producer.flush(timeout="soon")')
    wrong = wrong.replace("position: int =", "position: str =")
    told = checked(wrong, tmp_path)
    assert 'Argument "timeout" has incompatible type "str"; expected "float | None"' in told
    assert "Incompatible types in assignment" in told


REVEALED = """
from headrace import Admin, Consumer, Producer, aio


def blocking(producer: Producer, consumer: Consumer, admin: Admin) -> None:
    reveal_type(producer.send("orders", b"tea"))
    reveal_type(producer.flush)
    reveal_type(consumer.poll)
    reveal_type(consumer.committed([("orders", 0)]))
    reveal_type(admin.delete_topic)
    with producer.transaction() as inside:
        reveal_type(inside)


async def awaited(producer: aio.Producer, consumer: aio.Consumer, admin: aio.Admin) -> None:
    reveal_type(await producer.send("orders", b"tea"))
    reveal_type(producer.flush)
    reveal_type(consumer.poll)
    reveal_type(await consumer.committed([("orders", 0)]))
    reveal_type(admin.delete_topic)
    async with producer.transaction() as inside:
        reveal_type(inside)


async def forgotten(producer: aio.Producer, consumer: aio.Consumer) -> None:
    consumer.poll(1.0)
    with producer.transaction():
        pass
"""
COMMITTED = (
    "dict[tuple[str, int, fallback=TopicPartition], tuple[int, int, str, fallback=CommittedOffset] | None]"
)


def test_each_form_of_a_method_has_its_own_type(tmp_path: Path) -> None:
    """They are written once: a coroutine that is not awaited must be found all the same."""
    told = checked(REVEALED, tmp_path)
    short = re.sub(r"\b(?:headrace|builtins|typing)(?:\.\w+)*\.(?=\w)", "", told)
    assert re.findall(r'Revealed type is "(.*)"', short) == [
        "Delivery",
        "def (timeout: float | None =)",
        "def (timeout: float | None =, max_records: int | None =) -> list[Message]",
        COMMITTED,
        "def (name: str)",
        "Producer",
        "Delivery",
        "def (timeout: float | None =) -> Coroutine[Any, Any, None]",
        "def (timeout: float | None =, max_records: int | None =) -> Coroutine[Any, Any, list[Message]]",
        COMMITTED,
        "def (name: str) -> Coroutine[Any, Any, None]",
        "Producer",
    ]
    assert "Are you missing an await?" in told
    assert '"AsyncTransaction[Producer]" has no attribute "__enter__"' in short
