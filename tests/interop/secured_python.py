"""Python's clients, and kcat, at secured brokers. `echo` of each sends record after record, reads each of
them back in a group, and commits, all cells of a file at a time, as go/secured.go, js/secured.js and
java/Secured.java do.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

import headrace
from harness.kcat import kcat
from harness.wait import WAIT_S, Patience, run_to_end
from interop.secured_cells import Cell

Told = dict[str, Any]
STUCK_S = WAIT_S / 4


class Failed(Exception):
    """kcat has ended with an error."""


def numbers(cell: Cell) -> Iterator[int]:
    """So many, and then more of them for so long."""
    yield from range(cell.count)
    number, until = cell.count, time.monotonic() + cell.seconds
    while time.monotonic() < until:
        time.sleep(0.02)
        yield number
        number += 1


class Reader:
    """What has to come next, or what came before: a member whose connection ended may begin again."""

    def __init__(self) -> None:
        self.read = 0

    def take(self, value: bytes | None, offset: int | None) -> None:
        assert offset is not None
        assert value == b"%d" % offset
        assert offset <= self.read, f"{offset} instead of {self.read}"
        self.read += offset == self.read

    def told(self, committed: int | None) -> Told:
        return {"echoed": self.read, "committed": committed}


def with_librdkafkas_names(cell: Cell) -> dict[str, Any]:
    """Which our client has, too."""
    given = {
        "bootstrap.servers": cell.bootstrap,
        "client.id": cell.topic,
        "security.protocol": cell.protocol,
        "ssl.ca.location": cell.authority,
        "ssl.certificate.location": cell.certificate,
        "ssl.key.location": cell.key,
        "sasl.mechanism": cell.mechanism,
        "sasl.username": cell.user,
        "sasl.password": cell.password,
    }
    return {key: value for key, value in given.items() if value}


def echo_of_headrace(cell: Cell) -> Told:
    settings = with_librdkafkas_names(cell)
    if cell.token:
        settings["oauth_token_provider"] = lambda: cell.token
    reader = Reader()
    with (
        headrace.Producer(settings) as producer,
        headrace.Consumer(
            settings, group_id=cell.topic, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
    ):
        consumer.subscribe([cell.topic])
        for number in numbers(cell):
            producer.send(cell.topic, b"%d" % number).get(WAIT_S)
            while reader.read <= number:
                for message in consumer.poll(1.0):
                    reader.take(message.value, message.offset)
        consumer.commit()
        place = headrace.TopicPartition(cell.topic, 0)
        committed = consumer.committed([place])[place]
        return reader.told(None if committed is None else committed.offset)


def _keep_error(kept: list[Any], error: Any, _: confluent_kafka.Message) -> None:
    kept.append(error)


def echo_of_confluent(cell: Cell) -> Told:
    errors: list[confluent_kafka.KafkaError] = []
    settings = with_librdkafkas_names(cell) | {"error_cb": errors.append, "log_level": 0}
    if cell.token:
        settings["oauth_cb"] = lambda _: (cell.token, time.time() + 300)
    producer = confluent_kafka.Producer(settings | {"enable.idempotence": True, "linger.ms": 0})
    consumer = confluent_kafka.Consumer(
        settings
        | {
            "group.id": cell.topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    reader = Reader()
    try:
        consumer.subscribe([cell.topic])
        for number in numbers(cell):
            delivered: list[Any] = []
            producer.produce(cell.topic, b"%d" % number, on_delivery=partial(_keep_error, delivered))
            while not delivered:
                producer.poll(0.1)
                if errors and not cell.seconds:
                    raise confluent_kafka.KafkaException(errors[0])
            if delivered[0] is not None:
                raise confluent_kafka.KafkaException(delivered[0])
            while reader.read <= number:
                message = consumer.poll(0.1)
                if errors and not cell.seconds:
                    raise confluent_kafka.KafkaException(errors[0])
                if message is not None and message.error() is None:
                    reader.take(message.value(), message.offset())
        consumer.commit(asynchronous=False)
        (place,) = consumer.committed([confluent_kafka.TopicPartition(cell.topic, 0)], WAIT_S)
        return reader.told(place.offset)
    finally:
        consumer.close()


def context(cell: Cell) -> ssl.SSLContext | None:
    if not cell.authority:
        return None
    made = ssl.create_default_context(cafile=cell.authority)
    if cell.certificate:
        made.load_cert_chain(cell.certificate, cell.key)
    return made


def with_underscores(cell: Cell, tokens: type[Any]) -> dict[str, Any]:
    """As aiokafka and kafka-python name their settings."""
    given: dict[str, Any] = {
        "bootstrap_servers": cell.bootstrap,
        "client_id": cell.topic,
        "security_protocol": cell.protocol,
        "ssl_context": context(cell),
    }
    if cell.token:
        given |= {"sasl_mechanism": cell.mechanism, "sasl_oauth_token_provider": tokens(cell.token)}
    elif cell.mechanism:
        login = {"sasl_plain_username": cell.user, "sasl_plain_password": cell.password}
        given |= {"sasl_mechanism": cell.mechanism, **login}
    return given


class AioTokens(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class PythonTokens(KafkaPythonTokens):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def echo_of_aiokafka(cell: Cell) -> Told:
    async def story() -> Told:
        settings = with_underscores(cell, AioTokens)
        reader = Reader()
        producer = AIOKafkaProducer(acks="all", **settings)
        consumer = AIOKafkaConsumer(
            cell.topic,
            group_id=cell.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **settings,
        )
        ends: list[Callable[[], Awaitable[None]]] = [producer.stop, consumer.stop]
        try:
            await producer.start()
            await consumer.start()
            for number in numbers(cell):
                await producer.send_and_wait(cell.topic, b"%d" % number)
                while reader.read <= number:
                    record = await consumer.getone()
                    reader.take(record.value, record.offset)
            await consumer.commit()
            (place,) = consumer.assignment()
            return reader.told(await consumer.committed(place))
        finally:
            for end in ends:
                await end()

    return asyncio.run(story())


def echo_of_kafka_python(cell: Cell) -> Told:
    settings = with_underscores(cell, PythonTokens)
    reader = Reader()
    producer = consumer = None

    def new_consumer() -> KafkaConsumer:
        return KafkaConsumer(
            cell.topic,
            group_id=cell.topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **settings,
        )

    try:
        # it tries until then, also with a wrong password
        patience_ms = 10_000 if cell.name.endswith("refused") else WAIT_S * 1000
        settings["bootstrap_timeout_ms"] = patience_ms
        producer = KafkaProducer(max_block_ms=patience_ms, **settings)
        producer.send(cell.topic, b"0").get(WAIT_S)
        consumer = new_consumer()
        for number in numbers(cell):
            if number:
                producer.send(cell.topic, b"%d" % number).get(WAIT_S)
            patience, attempt = Patience(WAIT_S), Patience(STUCK_S)
            while reader.read <= number:
                assert not patience.is_over, f"record {number} did not come"
                if attempt.is_over:  # some of its consumers never get their first offsets, at Kafka too
                    consumer.close()
                    consumer, attempt = new_consumer(), Patience(STUCK_S)
                for batch in consumer.poll(timeout_ms=200).values():
                    for record in batch:
                        reader.take(record.value, record.offset)
        consumer.commit()
        return reader.told(consumer.committed(TopicPartition(cell.topic, 0)))
    finally:
        for one in (producer, consumer):
            if one is not None:
                one.close()


def echo_of_kcat(cell: Cell) -> Told:
    """The group's second run goes on where the first one has committed."""
    settings = with_librdkafkas_names(cell)
    if cell.mechanism == "OAUTHBEARER":  # of Debian's librdkafka, which cannot fetch tokens
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
        settings |= {"sasl.oauthbearer.config": f"principal={cell.user or 'alice'}"}
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]

    def run(*words: str, given: str = "") -> list[str]:
        done = run_to_end([kcat(), *options, *words], input=given)
        if done.returncode:
            raise Failed(done.stderr)
        return done.stdout.split()

    values = [str(number) for number in range(cell.count)]
    run("-P", "-t", cell.topic, "-p", "0", given="\n".join(values[:-1]))
    earliest = ("-X", "auto.offset.reset=earliest", "-q")
    read = run("-G", cell.topic, "-c", str(cell.count - 1), *earliest, cell.topic)
    run("-P", "-t", cell.topic, "-p", "0", given=values[-1])
    rest = run("-G", cell.topic, "-c", "1", *earliest, cell.topic)
    assert read + rest == values, (read, rest)
    return {"echoed": len(values), "committed": len(values)}


CLIENTS: dict[str, Callable[[Cell], Told]] = {
    "headrace": echo_of_headrace,
    "confluent-kafka": echo_of_confluent,
    "aiokafka": echo_of_aiokafka,
    "kafka-python": echo_of_kafka_python,
    "kcat": echo_of_kcat,
}


def tell(client: str, cell: Cell) -> str:
    told: Told
    try:
        told = CLIENTS[client](cell)
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps({"step": cell.name, "told": told})


def main(client: str, file: str) -> None:
    """A process of its own: some clients leave sockets to the garbage collector when they are refused."""
    cells = [Cell(**fields) for fields in json.loads(Path(file).read_text())]
    with ThreadPoolExecutor(len(cells)) as pool:
        for line in pool.map(partial(tell, client), cells):
            print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
