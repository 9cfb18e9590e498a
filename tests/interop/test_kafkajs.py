"""kafkajs, from npm, as producer and admin; what it wrote is read back by kcat's sibling, confluent-kafka."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from harness.broker import CACHE, Broker
from interop.side_by_side import assert_same

HERE = Path(__file__).parent / "js"
MODULES = CACHE / "js"
WAIT_S = 120


@pytest.fixture(scope="module")
def modules() -> Path:
    """node_modules of the pinned versions, fetched once."""
    stamp = MODULES / "package.json"
    if not stamp.exists() or stamp.read_text() != (HERE / "package.json").read_text():
        MODULES.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / ".npmrc", MODULES)
        (MODULES / "package.json").unlink(missing_ok=True)
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(MODULES)]
        wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
        subprocess.run([*install, *(f"{n}@{v}" for n, v in wanted.items())], check=True, timeout=300)
        shutil.copy(HERE / "package.json", MODULES)
    return MODULES / "node_modules"


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


def test_produces_and_administers(brokers: tuple[Broker, Broker], modules: Path, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        command = ["node", str(HERE / "story.js"), broker.bootstrap, topic]
        environment = os.environ | {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment)
        assert done.returncode == 0, done.stderr + done.stdout
        told = [json.loads(line) for line in done.stdout.splitlines()]
        return [*told, read_back(broker, topic, 292)]

    told = assert_same(brokers, story)
    assert len(told[-1]) == 292  # type: ignore[arg-type]
