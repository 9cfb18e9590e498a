"""`__consumer_offsets` and `__transaction_state` read by Kafka's own formatters: no errors, and the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from clients.grouping import leaving, places, share
from harness.broker import Broker
from harness.members import CLIENTS
from harness.quick_coordinators import QUICK_COORDINATORS
from harness.wait import WAIT_S
from interop.java_tools import Run, create
from interop.side_by_side import assert_same

Brokers = tuple[Broker, Broker]
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
COUNTS = {
    OFFSETS: int(QUICK_COORDINATORS["offsets.topic.num.partitions"]),
    TRANSACTIONS: int(QUICK_COORDINATORS["transaction.state.log.num.partitions"]),
}
MEMBER_ID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def home(topic: str, name: str) -> int:
    """The partition in which a group or a transactional id lives, by Java's hash of strings."""
    code = 0
    for letter in name:
        code = (code * 31 + ord(letter)) & 0xFFFF_FFFF
    return min(code, 2**32 - code) % COUNTS[topic]  # the absolute value of 32 bits with a sign


def written(run: Run, broker: Broker, topic: str, name: str, formatter: str) -> list[Any]:
    """What the formatter prints of the records of one group or transactional id, without times and ids."""
    where = ["--topic", topic, "--partition", str(home(topic, name)), "--offset", "earliest"]
    kind = ["--formatter", f"org.apache.kafka.tools.consumer.{formatter}", "--timeout-ms", "1500"]
    printed = run(broker, "kafka-console-consumer", *where, *kind)
    assert printed.code == 0, printed
    assert re.fullmatch(r"Processed a total of \d+ messages\s*", printed.err), printed.err
    rows = documents(MEMBER_ID.sub("-ID", printed.out))
    owners = ("group", "groupId", "transactionalId")
    return [plain(row) for row in rows if name in [row["key"]["data"].get(owner) for owner in owners]]


def documents(text: str) -> Iterator[Any]:
    """The formatters print one after the other, with nothing between them."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text.rstrip()):
        found, position = decoder.raw_decode(text, position)
        yield found


def plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: plain(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((plain(inner) for inner in value), key=str)
    if "imestamp" in name and isinstance(value, int) and value > 0:
        return "time"
    return "id" if name in ("topicId", "producerId", "previousProducerId") else value


def test_offsets(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[Any]:
        create(run, broker, topic, 3)
        settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        reader = Consumer(settings | {"group.id": topic})

        def at(partition: int, offset: int, metadata: str = "") -> TopicPartition:
            return TopicPartition(topic, partition, offset, metadata)

        for offsets in ([at(0, 5, "a note"), at(1, 7)], [at(0, 6)], [at(0, 6)]):
            reader.commit(offsets=offsets, asynchronous=False)
        run(broker, "kafka-consumer-groups", "--group", topic, "--delete-offsets", "--topic", f"{topic}:1")
        sender = Producer(settings | {"transactional.id": topic})
        sender.init_transactions(WAIT_S)
        for offset, end in ((3, sender.commit_transaction), (9, sender.abort_transaction)):
            sender.begin_transaction()
            sender.produce(topic, b"copy", partition=0)
            sender.send_offsets_to_transaction([at(2, offset)], reader.consumer_group_metadata(), WAIT_S)
            end(WAIT_S)
        admin = AdminClient(settings)
        moved = ConsumerGroupTopicPartitions(topic, [at(1, 1, "by the admin")])
        admin.alter_consumer_group_offsets([moved])[topic].result(WAIT_S)
        reader.close()
        told = written(run, broker, OFFSETS, topic, "OffsetsMessageFormatter")
        admin.delete_consumer_groups([topic])[topic].result(WAIT_S)
        assert written(run, broker, OFFSETS, topic, "OffsetsMessageFormatter")[: len(told)] == told
        for row in told[-3:-1]:  # in a transaction Kafka does not remember the topic's id, and Headrace does
            row["value"]["data"].pop("topicId", None)
        return told

    told = assert_same(brokers, story)
    assert [row["value"] and row["value"]["data"]["offset"] for row in told][-3:] == [3, 9, 1]


def test_classic_groups(brokers: Brokers, run: Run, topic: str) -> None:
    def story(broker: Broker) -> list[Any]:
        create(run, broker, topic, 3)
        for instance in (None, "static"):
            settings = {"client.id": "golden", "partition.assignment.strategy": "range,roundrobin"}
            with leaving(
                [CLIENTS["confluent-kafka"](broker.bootstrap, topic, [topic], instance=instance, **settings)]
            ) as members:
                share(members, places(topic, 3))
        # and later, when the static member does not come back, one more
        return written(run, broker, OFFSETS, topic, "GroupMetadataMessageFormatter")[:4]

    told = assert_same(brokers, story)
    assert [row["value"]["data"]["generation"] for row in told] == [0, 1, 2, 3]


def test_transactions(brokers: Brokers, run: Run, topic: str) -> None:
    """librdkafka speaks version 1, the Java producer version 2 of the protocol."""

    def story(broker: Broker) -> list[Any]:
        create(run, broker, topic)
        settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        sender = Producer(settings | {"transactional.id": topic})
        sender.init_transactions(WAIT_S)
        for end in (sender.commit_transaction, sender.abort_transaction):
            sender.begin_transaction()
            sender.produce(topic, b"value", partition=0)
            assert sender.flush(WAIT_S) == 0
            end(WAIT_S)
        Producer(settings | {"transactional.id": topic}).init_transactions(WAIT_S)
        java = f"{topic}-java"
        for _ in range(2):
            done = run(
                *(broker, "kafka-producer-perf-test", "--topic", topic, "--num-records", "10"),
                *("--record-size", "10", "--throughput", "-1", "--transactional-id", java),
                *("--transaction-duration-ms", "60000"),
            )
            assert done.code == 0, done
        names = (topic, java)
        return [written(run, broker, TRANSACTIONS, name, "TransactionLogMessageFormatter") for name in names]

    ours, javas = assert_same(brokers, story)
    assert [row["value"]["data"]["transactionStatus"] for row in ours] == [0, 1, 2, 4, 1, 3, 5, 0]
    assert [row["value"]["data"]["transactionStatus"] for row in javas] == [0, 1, 2, 4] * 2
