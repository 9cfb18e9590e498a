"""kcat, from Debian: an older librdkafka with its own ideas about versions."""

from __future__ import annotations

import json
import subprocess

import pytest

from harness.broker import Broker
from harness.kcat import kcat as program
from harness.wait import WAIT_S
from interop.side_by_side import assert_same, plain

Brokers = tuple[Broker, Broker]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    command = [program(), "-b", broker.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return plain(done.stdout, broker)


@pytest.mark.parametrize("codec", CODECS)
def test_produces_and_consumes(brokers: Brokers, topic: str, codec: str) -> None:
    def story(broker: Broker) -> list[dict[str, object]]:
        lines = "".join(f"key-{number}\tvalue {number}\n" for number in range(500))
        headers = ["-H", "trace=1", "-H", "trace=2", "-H", "empty="]
        kcat(broker, "-P", "-t", topic, "-p", "0", "-K", "\t", "-z", codec, *headers, stdin=lines)
        got = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J")
        messages = [json.loads(line) for line in got.splitlines()]
        for message in messages:
            assert message.pop("ts") > 0
        return messages

    messages = assert_same(brokers, story)
    assert [message["offset"] for message in messages] == list(range(500))


def test_null_values_and_empty_ones(brokers: Brokers, topic: str) -> None:
    def story(broker: Broker) -> str:
        kcat(broker, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", stdin="gone:\nthere:value\n:keyless\n")
        return kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%o %K %k %S %s\n")

    assert assert_same(brokers, story) == "0 4 gone -1 \n1 5 there 5 value\n2 -1  7 keyless\n"


def test_a_range_of_offsets(brokers: Brokers, topic: str) -> None:
    def story(broker: Broker) -> list[str]:
        kcat(broker, "-P", "-t", topic, "-p", "0", stdin="".join(f"{n}\n" for n in range(100)))
        where = ["-C", "-t", topic, "-p", "0", "-q", "-e"]
        return [
            kcat(broker, *where, "-o", "90"),
            kcat(broker, *where, "-o", "-5"),
            kcat(broker, *where, "-o", "10", "-c", "3"),
            kcat(broker, *where, "-o", "s@0", "-c", "2"),
        ]

    assert_same(brokers, story)


def test_offsets_by_time(brokers: Brokers, topic: str) -> None:
    def story(broker: Broker) -> list[str]:
        kcat(broker, "-P", "-t", topic, "-p", "0", stdin="one\ntwo\n")
        asked = ("-1", "-2", "0", "1700000000000", "99999999999999")
        return [kcat(broker, "-Q", "-t", f"{topic}:0:{when}") for when in asked]

    assert_same(brokers, story)


def test_metadata(brokers: Brokers, topic: str) -> None:
    def story(broker: Broker) -> object:
        kcat(broker, "-P", "-t", topic, "-p", "0", stdin="one\n")
        told = json.loads(kcat(broker, "-L", "-J", "-t", topic))
        told.pop("originating_broker")
        return told

    assert_same(brokers, story)


@pytest.mark.parametrize("settings", [["enable.idempotence=true"], ["acks=0"], ["acks=1"], ["acks=all"]])
def test_producer_settings(brokers: Brokers, topic: str, settings: list[str]) -> None:
    def story(broker: Broker) -> str:
        options = [word for setting in settings for word in ("-X", setting)]
        kcat(broker, "-P", "-t", topic, "-p", "0", *options, stdin="".join(f"{n}\n" for n in range(1000)))
        return kcat(broker, "-C", "-t", topic, "-p", "0", "-c", "1000", "-q")

    assert_same(brokers, story)
