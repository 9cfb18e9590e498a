"""One group of seven clients in four languages, under an assignor that all of them have.

Whoever joined first decides who gets what. The members leave in the order in which they joined, so every
client decides for the others once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from clients.grouping import leaving, places, produce, receive, share
from harness.broker import Broker
from harness.members import ASSIGNORS, CLIENTS, HEARTBEAT_MS
from harness.wait import WAIT_S
from interop.java_tools import compiled
from interop.members import Outsider

HERE = Path(__file__).parent
PARTITIONS = 12
JAVA_ASSIGNORS = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}


@pytest.fixture
def join(franz: Path, modules: Path) -> Callable[..., Any]:
    def outsider(group: str, topic: str, command: list[str], *more: str) -> Outsider:
        return Outsider(group, topic, [*command, *more], NODE_PATH=str(modules))

    def new(client: str, broker: Broker, topic: str, group: str, assignor: str) -> Any:
        where = [broker.bootstrap, topic, group]
        if client in CLIENTS:
            return CLIENTS[client](broker.bootstrap, group, [topic], **ASSIGNORS[assignor][client])
        if client == "franz-go":
            return outsider(group, topic, [str(franz), "member", *where, assignor])
        if client == "kafkajs":
            return outsider(group, topic, ["node", str(HERE / "js" / "member.js"), *where, assignor])
        strategy = f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[assignor]}"
        settings = [f"partition.assignment.strategy={strategy}", f"heartbeat.interval.ms={HEARTBEAT_MS}"]
        return outsider(group, topic, ["java", "-Xmx128m", "-cp", compiled(), "Member", *where, *settings])

    return new


ORDERS = {
    "range": ["java", "headrace", "kafkajs", "confluent-kafka", "franz-go", "aiokafka", "kafka-python"],
    "roundrobin": ["headrace", "franz-go", "kafka-python", "kafkajs", "aiokafka", "java", "confluent-kafka"],
}


@pytest.mark.steady  # kafka-python's consumer may end when it is refused
@pytest.mark.parametrize("assignor", ORDERS)
def test_seven_clients_share_one_group(
    brokers: tuple[Broker, Broker], join: Callable[..., Any], topic: str, assignor: str
) -> None:
    _, broker = brokers
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    everything = places(topic, PARTITIONS)
    with leaving([]) as members:
        for client in ORDERS[assignor]:
            members.append(join(client, broker, topic, topic, assignor))
            share(members, everything)
        expected = produce(broker.bootstrap, topic, PARTITIONS, 5)
        receive(members, expected)
        for _ in ORDERS[assignor][1:]:
            members.pop(0).close()
            share(members, everything)
