"""Transactional producers of confluent-kafka, and what their transactions left in the log."""

from __future__ import annotations

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from harness.wait import WAIT_S, Patience


def transactional(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    sender = Producer(config | {key.replace("_", "."): value for key, value in settings.items()})
    sender.init_transactions(WAIT_S)
    return sender


def send(sender: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Writes the values within the open transaction and waits until they are in the log."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        sender.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert sender.flush(WAIT_S) == 0
    assert not failures, failures


def ends(admin: AdminClient, topic: str) -> tuple[int, int]:
    """The last stable offset and the high watermark, as ListOffsets tells them."""
    return end(admin, topic, IsolationLevel.READ_COMMITTED), end(
        admin, topic, IsolationLevel.READ_UNCOMMITTED
    )


def end(admin: AdminClient, topic: str, isolation: IsolationLevel) -> int:
    """Asks again if a broker that no longer leads was asked: confluent-kafka does not do so by itself."""
    asked = TopicPartition(topic, 0)
    patience = Patience(WAIT_S)
    while True:
        answer = admin.list_offsets({asked: OffsetSpec.latest()}, isolation_level=isolation)[asked]
        try:
            return int(answer.result(WAIT_S).offset)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or patience.is_over:
                raise


def offset_of(admin: AdminClient, group: str, topic: str, *, require_stable: bool = False) -> int:
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    answer = admin.list_consumer_group_offsets(wanted, require_stable=require_stable)[group].result(WAIT_S)
    (found,) = answer.topic_partitions
    return int(found.offset)
