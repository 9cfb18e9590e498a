"""kafkajs, from npm: as producer and admin, in groups and in transactions (js/*.js).

What it wrote as a plain producer is read back by kcat's sibling, confluent-kafka.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from harness.broker import Broker
from interop.side_by_side import assert_same
from interop.told_by_programs import told_by

HERE = Path(__file__).parent / "js"
WAIT_S = 120


def read_back(broker: Broker, topic: str, count: int) -> list[Any]:
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    rows: list[Any] = []
    for message in reader.consume(count, timeout=WAIT_S):
        assert message.error() is None, message.error()
        kept = (message.partition(), message.offset(), message.key(), message.value(), message.headers())
        rows.append((*kept, message.timestamp()[1] if message.key() else None))
    reader.close()
    return sorted(rows, key=lambda row: row[:2])


def told(broker: Broker, modules: Path, story: str, topic: str) -> tuple[list[object], str]:
    """What the story of that name printed, step by step, and its topic."""
    environment = {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    program = ["node", str(HERE / f"{story}.js"), broker.bootstrap]
    return told_by(broker, lambda topic: [*program, topic], topic, environment)


def test_produces_and_administers(brokers: tuple[Broker, Broker], modules: Path, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        steps, own = told(broker, modules, "story", topic)
        return [*steps, read_back(broker, own, 292)]

    steps = assert_same(brokers, story)
    assert len(steps[-1]) == 292  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["groups", "transactions"])
def test_consumes(brokers: tuple[Broker, Broker], modules: Path, topic: str, name: str) -> None:
    assert_same(brokers, lambda broker: told(broker, modules, name, topic)[0])
