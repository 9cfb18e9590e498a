"""Dead letters, and `headrace redrive`, which sends them back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.registry_broker import RegistryBroker
from headrace import Admin, Consumer, NewTopic, Producer
from headrace.client.errors import KafkaError
from headrace.schemas.dead_letters import NotADeadLetter, attempts, dead_letter, read_dead_letter
from headrace.spark.decoding import DeadLetters

COMMAND = str(Path(sys.executable).with_name("headrace"))


def test_a_dead_letter_tells_its_story() -> None:
    letter = dead_letter(
        "not valid JSON",
        topic="clicks",
        partition=3,
        offset=42,
        timestamp_ms=1_700_000_000_000,
        key=b"k",
        value=b"\xff",
        headers=[("trace", b"1"), ("empty", None)],
    )
    assert letter.attempt == 1
    headers = letter.record_headers()
    assert headers[:2] == [("trace", b"1"), ("empty", None)]
    assert read_dead_letter(b"k", b"\xff", headers) == letter
    again = letter.redriven_headers()
    assert attempts(again) == 1
    failed = dead_letter(
        "still",
        topic="clicks",
        partition=3,
        offset=50,
        timestamp_ms=1,
        key=b"k",
        value=b"\xff",
        headers=again,
    )
    assert failed.attempt == 2
    assert failed.headers == (("trace", b"1"), ("empty", None))
    with pytest.raises(NotADeadLetter, match="no header"):
        read_dead_letter(None, None, [])
    with pytest.raises(NotADeadLetter, match="headers of the dead letter are invalid"):
        read_dead_letter(None, None, [(name, b"x") for name, _ in headers])


def redrive(registry_broker: RegistryBroker, topic: str, *arguments: str) -> dict[str, Any]:
    command = [COMMAND, "redrive", topic, "--json", "-b", registry_broker.servers, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_letters_go_back_once_and_not_for_ever(registry_broker: RegistryBroker) -> None:
    with Admin(registry_broker.servers) as admin:
        admin.create_topics([NewTopic("parcels", 3), NewTopic("parcels-dead", 2), NewTopic("other", 1)])
    with Producer(registry_broker.servers) as producer:
        for number in range(20):
            letter = dead_letter(
                "broken" if number % 2 else "unknown id",
                topic="parcels" if number < 18 else "other",
                partition=number % 3,
                offset=number,
                timestamp_ms=1_700_000_000_000 + number,
                key=b"%d" % number,
                value=b"v%d" % number,
                headers=[("n", b"%d" % number)],
            )._replace(attempt=3 if number == 5 else 1)
            producer.send("parcels-dead", letter.value, letter.key, headers=letter.record_headers())
        producer.send("parcels-dead", b"a stranger")
    dry = redrive(registry_broker, "parcels-dead")
    assert dry == {
        "executed": False,
        "redriven": {"other": 2, "parcels": 17},
        "reasons": {"unknown id": 10, "broken": 9},
        "too_often": 1,
        "not_chosen": 0,
        "not_letters": 1,
    }
    some = redrive(
        registry_broker, "parcels-dead", "--source", "parcels", "--reason", "^unk", "--group", "picky"
    )
    assert (some["redriven"], some["not_chosen"]) == ({"parcels": 9}, 11)
    assert redrive(registry_broker, "parcels-dead", "--execute")["redriven"] == {"other": 2, "parcels": 17}
    assert redrive(registry_broker, "parcels-dead", "--execute")["redriven"] == {}  # it knows how far it got
    assert redrive(registry_broker, "parcels-dead", "--from", "earliest", "-n", "4")["redriven"] != {}
    with Consumer(registry_broker.servers, isolation_level="read_committed") as consumer:
        consumer.assign({("parcels", index): 0 for index in range(3)})
        found: dict[int, Any] = {}
        while len(found) < 17:
            for message in consumer.poll(10):
                assert message.key not in found
                found[int(message.key)] = message
    assert 5 not in found
    for number, message in found.items():
        assert message.partition == number % 3
        assert message.value == b"v%d" % number
        assert message.timestamp_ms == 1_700_000_000_000 + number
        assert message.headers[0] == ("n", b"%d" % number)
        assert attempts(message.headers) == 1


def test_a_letter_that_cannot_be_written_is_an_error(registry_broker: RegistryBroker) -> None:
    letters = DeadLetters("tight", {"bootstrap.servers": registry_broker.servers})
    with Admin(registry_broker.servers) as admin:
        admin.create_topic("tight", partitions=1, configs={"max.message.bytes": "1000"})
    kafka = {
        "topic": "clicks",
        "partition": 0,
        "offset": 7,
        "timestamp": None,
        "key": None,
        "headers": [{"key": "n", "value": b"1"}],
    }
    table = pa.Table.from_pylist([{**kafka, "value": b"small"}, {**kafka, "value": bytes(2_000)}])
    letters.send(table, {0: "broken"})
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        letters.send(table, {0: "broken", 1: "broken"})
    letters.close()
