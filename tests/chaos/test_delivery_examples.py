"""The examples of the three promises keep them while their process is killed again and again, with
confluent-kafka and with our own client.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from harness.broker import ROOT, Broker
from harness.group_offsets import GroupOffsets
from harness.wait import WAIT_S

EXAMPLES = ROOT / "examples" / "delivery"
CLIENTS = {"confluent-kafka": EXAMPLES, "headrace": EXAMPLES / "headrace"}
ROUNDS = 4  # the process is killed at the end of each but the last
RECORDS = 500  # more of them in each round
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
EVERYTHING = [b"%d" % number for number in range(ROUNDS * RECORDS)]


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def broker(client: str, new_broker: Callable[..., Broker]) -> Broker:
    """One for each client: their examples call themselves by the same names."""
    return new_broker(SETTINGS).start()


class Story:
    """One example at work on a topic of its own, `source`."""

    def __init__(self, broker: Broker, client: str, example: str) -> None:
        self.bootstrap, self.example = broker.bootstrap, example
        self.script = str(CLIENTS[client] / f"{example}.py")
        self.source, self.group = f"{example}-source", example.replace("_", "-")
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.sender = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, *topics: str) -> None:
        for created in self.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            created.result(WAIT_S)

    def play(self, output: str) -> None:
        rng = random.Random(self.example)
        for turn in range(ROUNDS):
            for value in EVERYTHING[turn * RECORDS : (turn + 1) * RECORDS]:
                self.sender.produce(self.source, value)
            assert self.sender.flush(WAIT_S) == 0
            is_last = turn == ROUNDS - 1
            self.work(output, (turn + 1) * RECORDS if is_last else turn * RECORDS + rng.randrange(1, RECORDS))

    def work(self, output: str, until: int) -> None:
        """Runs the example until so many records are committed, and kills it in the middle of its work."""
        command = [sys.executable, self.script, self.bootstrap, self.source, output]
        process = subprocess.Popen(command)
        offsets = GroupOffsets(self.bootstrap, self.group, self.source)
        deadline = time.monotonic() + WAIT_S
        try:
            while (at := offsets.total() or 0) < until:
                assert process.poll() is None, f"{self.example} ended with {process.returncode}"
                assert time.monotonic() < deadline, f"{self.example} is at {at}, not at {until}"
        finally:
            process.kill()
            process.wait()
            offsets.close()


def test_at_most_once_never_handles_a_record_twice(broker: Broker, client: str, tmp_path: Path) -> None:
    story = Story(broker, client, "at_most_once")
    story.create(story.source)
    story.play(str(tmp_path / "handled"))
    handled = (tmp_path / "handled").read_bytes().split()
    assert handled == sorted(set(handled), key=int), "something was handled twice or out of order"
    assert len(EVERYTHING) - ROUNDS <= len(handled) <= len(EVERYTHING)


def test_at_least_once_handles_every_record(broker: Broker, client: str, tmp_path: Path) -> None:
    story = Story(broker, client, "at_least_once")
    story.create(story.source)
    story.play(str(tmp_path / "handled"))
    handled = (tmp_path / "handled").read_bytes().split()
    assert sorted(set(handled), key=int) == EVERYTHING
    assert len(handled) <= len(EVERYTHING) + ROUNDS


def test_exactly_once_writes_each_result_once(broker: Broker, client: str) -> None:
    story = Story(broker, client, "exactly_once")
    story.create(story.source, "results")
    story.play("results")
    assert read_committed(broker.bootstrap, "results") == EVERYTHING


def read_committed(bootstrap: str, topic: str) -> list[bytes | None]:
    settings = {"group.id": "judge", "enable.auto.commit": False, "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed"} | settings)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes | None] = []
    try:
        while True:
            for message in reader.consume(1000, 1.0):
                if (error := message.error()) is None:
                    values.append(message.value())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return values
    finally:
        reader.close()
