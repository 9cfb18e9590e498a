"""Values that no schema fits, registries that do not answer, and the way back of dead letters."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headrace
from harness.registry_broker import RegistryBroker
from harness.wait import run_to_end
from headrace.schemas import Registry, Schema, avro_serializer, json_serializer, protobuf_serializer
from headrace.schemas.dead_letters import DeadLetter, read_dead_letter
from headrace.schemas.wire import framed
from spark.frames import fields, load

COMMAND = str(Path(sys.executable).with_name("headrace"))
UNKNOWN = 70_000


class Language(NamedTuple):
    format: str
    schema: str
    serializer: Callable[..., Any]
    garbage: bytes  # behind an id that is right


AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'
LANGUAGES = [
    Language("avro", AVRO, avro_serializer, b"\x04\xff\xff"),
    Language(
        "json", '{"type": "object", "properties": {"item": {"type": "string"}}}', json_serializer, b"{]"
    ),
    Language(
        "protobuf",
        'syntax = "proto3"; message Order { string item = 1; }',
        lambda registry, schema, **more: protobuf_serializer(registry, schema=schema, **more),
        b"\x0a\x7f",
    ),
]


def messages_of(registry_broker: RegistryBroker, topic: str, count: int) -> list[Any]:
    with headrace.Consumer(registry_broker.servers, isolation_level="read_committed") as consumer:
        consumer.assign({(topic, 0): 0})
        found: list[Any] = []
        while len(found) < count:
            found += consumer.poll(30)
    return found


def letters_of(registry_broker: RegistryBroker, topic: str, count: int) -> list[DeadLetter]:
    found = messages_of(registry_broker, topic, count)
    return [read_dead_letter(message.key, message.value, message.headers) for message in found]


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda one: one.format)
def test_garbage_in_every_mode(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str, language: Language
) -> None:
    registry = Registry(registry_broker.url)
    serializer = language.serializer(registry, language.schema, topic=orders)
    good = serializer.to_bytes({"item": "tea"})
    id = int.from_bytes(good[1:5], "big")
    values = {
        0: good,
        1: b"",
        2: b"\x07" + good[1:],  # another magic byte
        3: good[:3],
        4: b"plain text",
        5: framed(UNKNOWN, good[5:]),
        6: good[:-2],
        7: framed(id, language.garbage, (0,) if language.format == "protobuf" else None),
        8: None,  # a tombstone is not garbage
        9: good,
    }
    with headrace.Producer(registry_broker.servers) as producer:
        for offset, value in values.items():
            producer.send(orders, value, b"k%d" % offset, headers=[("n", b"%d" % offset)])
    bad = [1, 2, 3, 4, 5, 6, 7]
    options = {"valueFormat": language.format, "schema.registry.url": registry_broker.url}

    with pytest.raises(
        PySparkException,
        match=f"offset 1 of partition {orders}-0 cannot be decoded: value: .*the value is empty",
    ):
        load(spark, registry_broker, orders, options).collect()
    shown = fields(load(spark, registry_broker, orders, options | {"mode": "PERMISSIVE"}))
    assert [row["item"] for row in shown] == ["tea", *[None] * 8, "tea"]
    kept = (
        load(spark, registry_broker, orders, options | {"mode": "DROPMALFORMED"})
        .select("item", "_offset")
        .collect()
    )
    assert sorted((row._offset, row.item) for row in kept) == [(0, "tea"), (8, None), (9, "tea")]

    dead = f"{orders}-dead"
    with headrace.Admin(registry_broker.servers) as admin:
        admin.create_topic(dead, partitions=1)
    assert load(spark, registry_broker, orders, options | {"deadLetterTopic": dead}).count() == 3
    letters = letters_of(registry_broker, dead, len(bad))
    assert [letter.offset for letter in letters] == bad
    for letter in letters:
        assert (letter.topic, letter.partition, letter.attempt) == (orders, 0, 1)
        assert letter.value == values[letter.offset]
        assert letter.key == b"k%d" % letter.offset
        assert letter.headers == (("n", b"%d" % letter.offset),)
    reasons = {letter.offset: letter.reason for letter in letters}
    assert "does not begin with a schema's id" in reasons[2]
    assert f"{registry_broker.url} does not know schema {UNKNOWN}" in reasons[5]


def redriven(registry_broker: RegistryBroker, topic: str) -> dict[str, Any]:
    command = [
        COMMAND,
        "redrive",
        topic,
        "--execute",
        "--attempts",
        "2",
        "--json",
        "-b",
        registry_broker.servers,
    ]
    done = run_to_end(command)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_letters_come_back_once_their_schema_is_known(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str
) -> None:
    registry = Registry(registry_broker.url)
    serializer = avro_serializer(registry, AVRO, topic=orders)
    good = serializer.to_bytes({"item": "tea"})
    assert good is not None
    other = Schema(AVRO.replace("item", f"item_of_{orders.replace('-', '_')}"))  # nobody has it yet
    coming = registry.register(f"{orders}-marker", other) + 1  # the id that the next schema gets
    dead = f"{orders}-dead"
    with headrace.Admin(registry_broker.servers) as admin:
        admin.create_topic(dead, partitions=1)
    with headrace.Producer(registry_broker.servers) as producer:
        producer.send(orders, framed(coming, b"\x06cup\x04at"))
        producer.send(orders, b"hopeless")
        producer.send(orders, good)
    options = {"valueFormat": "avro", "schema.registry.url": registry_broker.url, "deadLetterTopic": dead}

    def items(begin: int) -> list[str]:
        offsets = json.dumps({orders: {"0": begin}})
        frame = load(spark, registry_broker, orders, options | {"startingOffsets": offsets})
        return [row["item"] for row in fields(frame)]

    assert items(0) == ["tea"]
    assert [letter.offset for letter in letters_of(registry_broker, dead, 2)] == [0, 1]

    grown = AVRO.replace("}]}", '}, {"name": "country", "type": "string", "default": "??"}]}')
    assert registry.register(f"{orders}-value", Schema(grown)) == coming  # the cause is repaired
    assert redriven(registry_broker, dead)["redriven"] == {orders: 2}
    assert items(3) == ["cup"]
    again = letters_of(registry_broker, dead, 3)[2]
    assert (again.value, again.attempt, again.offset) == (b"hopeless", 2, 4)

    last = redriven(registry_broker, dead)  # it has failed twice: enough
    assert (last["redriven"], last["too_often"]) == ({}, 1)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_no_record_is_blamed_for_a_registry_that_is_down(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str, mode: str
) -> None:
    good = avro_serializer(Registry(registry_broker.url), AVRO, topic=orders).to_bytes({"item": "tea"})
    assert good is not None
    with headrace.Producer(registry_broker.servers) as producer:
        producer.send(orders, good)
    id = int.from_bytes(good[1:5], "big")
    options = {"valueFormat": "avro", "valueSchema": AVRO, "schema.registry.url": "http://127.0.0.1:9"}
    with pytest.raises(
        PySparkException,
        match=f"no registry answered the request about schema {id}: http://127.0.0.1:9 cannot be reached",
    ):
        load(spark, registry_broker, orders, options | {"mode": mode}).collect()


class LoginPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>please log in</html>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_who_asks_a_registry_for_columns_is_told_what_is_wrong(
    spark: SparkSession, registry_broker: RegistryBroker, orders: str
) -> None:
    options = {"valueFormat": "avro", "schema.registry.url": registry_broker.url}
    with pytest.raises(
        PySparkException, match=f"{registry_broker.url} does not know subject '{orders}-value'"
    ):
        load(spark, registry_broker, orders, options).collect()
    with ThreadingHTTPServer(("127.0.0.1", 0), LoginPage) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        elsewhere = f"http://127.0.0.1:{server.server_address[1]}"
        said = (
            f"{elsewhere} is not a schema registry; it answered the request about "
            f"subject '{orders}-value' with .*please log in"
        )
        with pytest.raises(PySparkException, match=said):
            load(spark, registry_broker, orders, options | {"schema.registry.url": elsewhere}).collect()
        server.shutdown()
        thread.join()
