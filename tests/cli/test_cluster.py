"""`headrace up --brokers 3`: three processes that are one cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cli.running import Up
from harness.wait import eventually

WAIT_S = 60


@pytest.fixture
def three(headrace: Any, tmp_path: Path) -> Any:
    up = Up(headrace, tmp_path / "data", "--brokers", "3")
    yield up
    up.end()


def test_a_broker_dies_and_nothing_is_lost(three: Up) -> None:
    """Records are written while the leader of their partition is killed; `up` starts it again."""
    servers = three.line.split()[1]
    assert len(servers.split(",")) == 3
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(WAIT_S)

    def partition() -> Any:
        return admin.list_topics("t", timeout=WAIT_S).topics["t"].partitions[0]

    eventually(lambda: len(partition().isrs), 3)
    leader = partition().leader
    # idempotent: a record whose acknowledgement was lost with the leader is not written twice
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    acknowledged: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(int(message.value() or b""))

    for number in range(200):
        producer.produce("t", str(number), on_delivery=delivered)
        producer.poll(0.005)
        if number == 100:
            os.kill(int((three.data / f"node-{leader}" / "pid").read_text()), signal.SIGKILL)
    assert producer.flush(WAIT_S) == 0
    assert acknowledged == list(range(200))
    assert partition().leader != leader
    eventually(lambda: len(partition().isrs), 3)  # it was started again, and has caught up
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    read: list[int] = []
    while len(read) < 200:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        read.append(int(value))
    consumer.close()
    assert read == list(range(200))
    assert three.stop() == 0


def test_all_nodes_are_killed_and_all_come_back(three: Up) -> None:
    """None of them is ready before most of them run, so `up` must not wait for the first alone."""
    servers = three.line.split()[1]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(WAIT_S)
    pids = [three.data / f"node-{node}" / "pid" for node in (1, 2, 3)]
    killed = [path.read_text() for path in pids]
    for pid in killed:
        os.kill(int(pid), signal.SIGKILL)

    def in_sync() -> int:
        return len(admin.list_topics("t", timeout=WAIT_S).topics["t"].partitions[0].isrs)

    eventually(in_sync, 3)
    assert not set(killed) & {path.read_text() for path in pids}
    assert three.stop() == 0


def test_all_nodes_stop_at_once_and_each_stops_cleanly(three: Up) -> None:
    """The last of them has nobody to hand over to, and does not wait for a controller that has ended."""
    servers = three.line.split()[1]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("t", 6, 3)])["t"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    for number in range(600):
        producer.produce("t", str(number))
    assert producer.flush(WAIT_S) == 0
    assert three.stop() == 0
    for node in (1, 2, 3):
        directory = three.data / f"node-{node}"
        assert (directory / "data" / ".kafka_cleanshutdown").exists(), node
        log = (directory / "node.log").read_text()
        assert " stopped\n" in log
        assert "did not confirm in time" not in log
