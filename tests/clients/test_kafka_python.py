"""kafka-python: producer, consumer by assignment and admin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import (
    InvalidPartitionsError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
)

from clients.samples import BASE_MS, CODECS, SAMPLES, Row
from clients.with_kafka_python import consumer, producer, read, row, send
from harness.broker import Broker
from harness.wait import WAIT_S, eventually

MIB = 1 << 20


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin_client:
        yield admin_client


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_carries_every_kind_of_record(
    bootstrap: str, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic()
    with producer(bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50) as sender:
        assert send(sender, topic, SAMPLES) == [sample.offset for sample in SAMPLES]
    with consumer(bootstrap, topic) as reader:
        assert [row(record) for record in read(reader, len(SAMPLES))] == list(SAMPLES)


@pytest.mark.parametrize("size", [1, 100, 10_000, MIB, 10 * MIB])
def test_messages_of_every_size(bootstrap: str, new_topic: Callable[..., str], size: int) -> None:
    topic = new_topic(max_message_bytes=str(12 * MIB))
    sent = tuple(Row(i, BASE_MS, None, bytes([65 + i]) * size, ()) for i in range(2))
    with producer(bootstrap, max_request_size=11 * MIB) as sender:
        send(sender, topic, sent)
    with consumer(bootstrap, topic) as reader:
        assert [row(record) for record in read(reader, 2)] == list(sent)


def test_a_message_above_the_topics_limit_is_refused(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="1000")
    with producer(bootstrap) as sender, pytest.raises(MessageSizeTooLargeError):
        sender.send(topic, b"x" * 2000).get(WAIT_S)


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 0, "enable_idempotence": False},
        {"acks": 1, "enable_idempotence": False},
        {"acks": "all", "enable_idempotence": False},
        {"enable_idempotence": True},
    ],
)
def test_acks_and_idempotence(
    bootstrap: str, new_topic: Callable[..., str], settings: dict[str, object]
) -> None:
    topic = new_topic(partitions=2)
    with producer(bootstrap, **settings) as sender:
        for number in range(200):
            sender.send(topic, b"%d" % number, partition=number % 2)
        sender.flush(WAIT_S)
    with consumer(bootstrap, topic, partitions=2) as reader:
        records = read(reader, 200)
    for partition in range(2):
        values = [int(record.value) for record in records if record.partition == partition]
        assert values == list(range(partition, 200, 2))


def test_offsets_by_timestamp_and_ends(
    bootstrap: str, client: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    with producer(bootstrap) as sender:
        send(sender, topic, SAMPLES)
    with consumer(bootstrap, topic) as reader:
        found = reader.offsets_for_times({partition: BASE_MS + 1500})
        assert (found[partition].offset, found[partition].timestamp) == (2, BASE_MS + 2000)
        assert reader.offsets_for_times({partition: BASE_MS + 10**9}) == {partition: None}
        assert reader.beginning_offsets([partition]) == {partition: 0}
        assert reader.end_offsets([partition]) == {partition: len(SAMPLES)}
    for spec, offset in [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, len(SAMPLES)),
        (OffsetSpec.MAX_TIMESTAMP, len(SAMPLES) - 1),
        (OffsetSpec.EARLIEST_LOCAL, 0),
        (OffsetSpec.LATEST_TIERED, -1),
    ]:
        assert client.list_partition_offsets({partition: spec})[partition].offset == offset


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", len(SAMPLES))])
def test_reset_when_there_is_no_position(
    bootstrap: str, new_topic: Callable[..., str], reset: str, expected: int
) -> None:
    topic = new_topic()
    with producer(bootstrap) as sender:
        send(sender, topic, SAMPLES)
        with consumer(bootstrap, topic, auto_offset_reset=reset) as reader:
            assert reader.position(TopicPartition(topic, 0), timeout_ms=WAIT_S * 1000) == expected
            send(sender, topic, SAMPLES[:1])
            assert read(reader, 1)[0].offset == expected
    with consumer(bootstrap, topic, auto_offset_reset="none") as reader:
        reader.seek(TopicPartition(topic, 0), 500)
        with pytest.raises(OffsetOutOfRangeError):
            read(reader, 1)


def test_a_waiting_consumer_gets_the_record_at_once(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    settings = {"fetch_max_wait_ms": 60_000, "request_timeout_ms": 61_000, "connections_max_idle_ms": 90_000}
    with consumer(bootstrap, topic, **settings) as reader, producer(bootstrap) as sender:
        assert reader.poll(timeout_ms=200) == {}
        for number in range(5):
            sender.send(topic, b"%d" % number).get(WAIT_S)
            assert read(reader, 1)[0].value == b"%d" % number


def test_a_topic_is_made_by_producing_to_it(bootstrap: str, name: str) -> None:
    with producer(bootstrap) as sender:
        assert sender.send(name, b"x").get(WAIT_S).offset == 0


def test_topics_are_created_widened_emptied_and_deleted(
    bootstrap: str, client: KafkaAdminClient, name: str
) -> None:
    def partitions() -> int:
        (described,) = client.describe_topics([name])
        return len(described["partitions"])

    client.create_topics({name: {"num_partitions": 2, "replication_factor": -1}})
    eventually(partitions, 2)
    with pytest.raises(TopicAlreadyExistsError):
        client.create_topics({name: {"num_partitions": 2}})
    client.create_partitions({name: 3})
    eventually(partitions, 3)
    with pytest.raises(InvalidPartitionsError):
        client.create_partitions({name: 1})
    with producer(bootstrap) as sender:
        send(sender, name, SAMPLES, partition=2)
    emptied = client.delete_records({TopicPartition(name, 2): 4})
    assert [answer["low_watermark"] for answer in emptied.values()] == [4]
    client.delete_topics([name])
    eventually(lambda: name in client.list_topics(), False)


@pytest.mark.steady  # the client does not repeat a request whose broker has died
def test_configs_are_changed_step_by_step(client: KafkaAdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    def modified() -> dict[str, str]:
        answer = client.describe_configs([ConfigResource("topic", topic)])
        return {key: entry["value"] for key, entry in answer["topic"][topic].items()}

    def alter(**operations: tuple[str, str | None]) -> str:
        changes = {key.replace("_", "."): operation for key, operation in operations.items()}
        answer = client.alter_configs([ConfigResource("topic", topic, changes)])
        return str(answer["topic"][topic])

    alter(retention_ms=("SET", "99000"), cleanup_policy=("APPEND", "compact"))
    eventually(modified, {"retention.ms": "99000", "cleanup.policy": "delete,compact"})
    alter(retention_ms=("DELETE", None), cleanup_policy=("SUBTRACT", "delete"))
    eventually(modified, {"cleanup.policy": "compact"})
    assert "InvalidConfigurationError" in alter(retention_ms=("SET", "soon"))
    assert modified() == {"cleanup.policy": "compact"}


@pytest.mark.steady
def test_the_cluster_and_its_directories_are_described(
    broker: Broker, bootstrap: str, client: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    with producer(bootstrap, acks="all") as sender:
        send(sender, topic, SAMPLES)
    described = client.describe_cluster()
    assert [one["broker_id"] for one in described["brokers"]] == broker.node_ids
    assert described["cluster_id"]
    answers = client.describe_log_dirs({topic: [0, 1]})
    assert len(answers) == len(broker.node_ids)
    for answer in answers:
        (directory,) = answer["log_dirs"]
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
        (told,) = directory["topics"]
        sizes = {one["partition_index"]: one["partition_size"] for one in told["partitions"]}
        assert sizes[1] == 0
        assert sizes[0] > sum(len(sample.value or b"") for sample in SAMPLES)


def test_an_idempotent_producer_is_described(
    bootstrap: str, client: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    with producer(bootstrap, enable_idempotence=True) as sender:
        send(sender, topic, SAMPLES)
    (described,) = client.describe_producers([partition])[partition].active_producers
    assert described.producer_epoch == 0
    assert described.last_sequence == len(SAMPLES) - 1
    assert described.last_timestamp == SAMPLES[-1].timestamp_ms
    assert described.current_transaction_start_offset == -1
