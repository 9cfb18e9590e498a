"""kafkajs, from npm: as producer and admin, in groups and in transactions (js/*.js).

What it wrote as a plain producer is read back by kcat's sibling, confluent-kafka.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from harness.broker import Broker
from interop.side_by_side import assert_same

HERE = Path(__file__).parent / "js"
WAIT_S = 120


def read_back(broker: Broker, topic: str, count: int) -> list[object]:
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    rows = []
    for message in reader.consume(count, timeout=WAIT_S):
        assert message.error() is None, message.error()
        kept = (message.partition(), message.offset(), message.key(), message.value(), message.headers())
        rows.append((*kept, message.timestamp()[1] if message.key() else None))
    reader.close()
    return sorted(rows, key=lambda row: row[:2])


def told(broker: Broker, modules: Path, story: str, topic: str) -> list[object]:
    """What the story of that name printed, step by step."""
    command = ["node", str(HERE / f"{story}.js"), broker.bootstrap, topic]
    environment = os.environ | {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_produces_and_administers(brokers: tuple[Broker, Broker], modules: Path, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        return [*told(broker, modules, "story", topic), read_back(broker, topic, 292)]

    steps = assert_same(brokers, story)
    assert len(steps[-1]) == 292  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["groups", "transactions"])
def test_consumes(brokers: tuple[Broker, Broker], modules: Path, topic: str, name: str) -> None:
    assert_same(brokers, lambda broker: told(broker, modules, name, topic))
