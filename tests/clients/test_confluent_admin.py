"""confluent-kafka's admin: topics, partitions, configs, deleted records, offsets and the cluster itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from clients.samples import BASE_MS
from harness.broker import Broker
from harness.wait import WAIT_S, Patience, eventually


def fill(bootstrap: str, topic: str, timestamps_ms: Iterable[int], partition: int = 0) -> None:
    sender = Producer({"bootstrap.servers": bootstrap})
    for timestamp_ms in timestamps_ms:
        sender.produce(topic, b"value", partition=partition, timestamp=timestamp_ms)
    assert sender.flush(WAIT_S) == 0


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource])[resource].result(WAIT_S)


def becomes(admin: AdminClient, topic: str, key: str, value: str) -> None:
    eventually(lambda: configs_of(admin, ConfigResource.Type.TOPIC, topic)[key].value, value)


def alter(admin: AdminClient, topic: str, *entries: ConfigEntry) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=list(entries))
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def entry(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def code_of(error: BaseException) -> int:
    assert isinstance(error, KafkaException)
    return int(error.args[0].code())


def create(admin: AdminClient, topic: NewTopic, **options: object) -> None:
    """Creates the topic and waits until the broker lists it, which Kafka does a moment later."""
    admin.create_topics([topic], **options)[topic.topic].result(WAIT_S)
    if "validate_only" not in options:
        eventually(lambda: is_listed(admin, topic.topic), True)


def is_listed(admin: AdminClient, topic: str) -> bool:
    return topic in admin.list_topics(timeout=WAIT_S).topics


def partition_count(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


@pytest.mark.steady
def test_a_created_topic_is_described_with_all_its_partitions(
    broker: Broker, admin: AdminClient, name: str
) -> None:
    create(admin, NewTopic(name, 5))
    described = admin.describe_topics(TopicCollection([name]))[name].result(WAIT_S)
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == list(range(5))
    for partition in described.partitions:
        assert partition.leader.id == partition.replicas[0].id
        assert sorted(replica.id for replica in partition.replicas) == broker.node_ids
        assert sorted(replica.id for replica in partition.isr) == broker.node_ids


def test_defaults_are_the_brokers(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name))
    assert partition_count(admin, name) == 1


@pytest.mark.parametrize(
    ("partitions", "replicas", "config", "code"),
    [
        (1, 4, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        (1, 1, {"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
        (1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        (1, 1, {"cleanup.policy": "burn"}, KafkaError.INVALID_CONFIG),
        (1, 1, {"segment.bytes": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_a_wrong_topic_is_refused(
    admin: AdminClient, name: str, partitions: int, replicas: int, config: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, NewTopic(name, partitions, replicas, config=config))
    assert code_of(refused.value) == code
    assert name not in admin.list_topics(timeout=WAIT_S).topics


@pytest.mark.parametrize("wrong", ["", ".", "..", "a/b", "x" * 250, "white space"])
def test_a_wrong_name_is_refused(admin: AdminClient, wrong: str) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, NewTopic(wrong, 1))
    assert code_of(refused.value) in (KafkaError.TOPIC_EXCEPTION, KafkaError._INVALID_ARG)


def test_the_same_topic_twice_is_refused(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name, 1))
    with pytest.raises(KafkaException) as refused:
        create(admin, NewTopic(name, 1))
    assert code_of(refused.value) == KafkaError.TOPIC_ALREADY_EXISTS


def test_names_that_collide_in_metrics_are_refused(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name + ".a", 1))
    with pytest.raises(KafkaException) as refused:
        create(admin, NewTopic(name + "_a", 1))
    assert code_of(refused.value) == KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name, 1), validate_only=True)
    assert name not in admin.list_topics(timeout=WAIT_S).topics


@pytest.mark.steady
def test_replicas_can_be_assigned_by_hand(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name, replica_assignment=[[1], [1]], num_partitions=2))
    assert partition_count(admin, name) == 2


def test_deleted_topics_are_gone_and_come_back_empty(admin: AdminClient, bootstrap: str, name: str) -> None:
    create(admin, NewTopic(name, 2))
    fill(bootstrap, name, range(BASE_MS, BASE_MS + 100))
    first = admin.describe_topics(TopicCollection([name]))[name].result(WAIT_S).topic_id
    admin.delete_topics([name], operation_timeout=WAIT_S)[name].result(WAIT_S)
    eventually(lambda: is_listed(admin, name), False)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([name])[name].result(WAIT_S)
    assert code_of(refused.value) == KafkaError.UNKNOWN_TOPIC_OR_PART
    create(admin, NewTopic(name, 2))
    second = admin.describe_topics(TopicCollection([name]))[name].result(WAIT_S).topic_id
    assert str(first) != str(second)
    assert offset_of(admin, name, OffsetSpec.latest()) == 0


def test_partitions_are_added_and_never_removed(admin: AdminClient, bootstrap: str, name: str) -> None:
    create(admin, NewTopic(name, 2))
    admin.create_partitions([NewPartitions(name, 6)])[name].result(WAIT_S)
    eventually(lambda: partition_count(admin, name), 6)
    fill(bootstrap, name, [BASE_MS], partition=5)
    for wrong in (6, 3):
        with pytest.raises(KafkaException) as refused:
            admin.create_partitions([NewPartitions(name, wrong)])[name].result(WAIT_S)
        assert code_of(refused.value) == KafkaError.INVALID_PARTITIONS


def test_records_below_an_offset_are_deleted(admin: AdminClient, bootstrap: str, name: str) -> None:
    create(admin, NewTopic(name, 1))
    fill(bootstrap, name, range(BASE_MS, BASE_MS + 100))
    deleted = admin.delete_records([TopicPartition(name, 0, 40)])
    (result,) = [future.result(WAIT_S) for future in deleted.values()]
    assert result.low_watermark == 40
    assert offset_of(admin, name, OffsetSpec.earliest()) == 40
    assert offset_of(admin, name, OffsetSpec.latest()) == 100
    (above_the_end,) = admin.delete_records([TopicPartition(name, 0, 101)]).values()
    with pytest.raises(KafkaException) as refused:
        above_the_end.result(WAIT_S)
    assert code_of(refused.value) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = admin.delete_records([TopicPartition(name, 0, -1)])
    assert [future.result(WAIT_S).low_watermark for future in everything.values()] == [100]


def offset_of(admin: AdminClient, topic: str, spec: OffsetSpec) -> int:
    """Asks again if a broker that does not lead the partition was asked.

    confluent-kafka tells that error and forgets which broker leads; the Java client asks again by itself.
    After a topic was deleted and created again, the broker that names the leader may still know the topic
    before.
    """
    asked = TopicPartition(topic, 0)
    patience = Patience(WAIT_S)
    while True:
        try:
            return int(admin.list_offsets({asked: spec})[asked].result(WAIT_S).offset)
        except KafkaException as refused:
            if code_of(refused) != KafkaError.NOT_LEADER_FOR_PARTITION or patience.is_over:
                raise


def test_offsets_for_every_kind_of_question(admin: AdminClient, bootstrap: str, name: str) -> None:
    create(admin, NewTopic(name, 1))
    fill(bootstrap, name, [BASE_MS, BASE_MS + 9000, BASE_MS + 3000])
    assert offset_of(admin, name, OffsetSpec.earliest()) == 0
    assert offset_of(admin, name, OffsetSpec.latest()) == 3
    assert offset_of(admin, name, OffsetSpec.max_timestamp()) == 1
    assert offset_of(admin, name, OffsetSpec.for_timestamp(BASE_MS + 1000)) == 1
    assert offset_of(admin, name, OffsetSpec.for_timestamp(BASE_MS + 9001)) == -1


@pytest.mark.steady  # the client does not repeat a request whose broker has died
def test_topic_configs_tell_value_source_and_synonyms(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name, 1, config={"retention.ms": "12345"}))
    becomes(admin, name, "retention.ms", "12345")
    configs = configs_of(admin, ConfigResource.Type.TOPIC, name)
    changed = configs["retention.ms"]
    assert (changed.value, changed.source) == ("12345", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert not changed.is_default
    assert not changed.is_read_only
    untouched = configs["segment.bytes"]
    assert (untouched.value, untouched.source) == ("1073741824", ConfigSource.DEFAULT_CONFIG.value)
    assert untouched.is_default
    assert "log.segment.bytes" in untouched.synonyms


def test_configs_are_set_appended_subtracted_and_deleted(admin: AdminClient, name: str) -> None:
    create(admin, NewTopic(name, 1))
    alter(admin, name, entry("retention.ms", "1000", AlterConfigOpType.SET))
    becomes(admin, name, "retention.ms", "1000")
    alter(admin, name, entry("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    becomes(admin, name, "cleanup.policy", "delete,compact")
    alter(admin, name, entry("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    becomes(admin, name, "cleanup.policy", "compact")
    alter(
        admin,
        name,
        entry("cleanup.policy", None, AlterConfigOpType.DELETE),
        entry("retention.ms", None, AlterConfigOpType.DELETE),
    )
    becomes(admin, name, "cleanup.policy", "delete")
    becomes(admin, name, "retention.ms", "604800000")
    configs = configs_of(admin, ConfigResource.Type.TOPIC, name)
    assert configs["cleanup.policy"].is_default
    assert configs["retention.ms"].is_default


@pytest.mark.parametrize(
    ("key", "value", "operation"),
    [
        ("no.such.key", "1", AlterConfigOpType.SET),
        ("retention.ms", "soon", AlterConfigOpType.SET),
        ("retention.ms", "1", AlterConfigOpType.APPEND),
        ("compression.type", "rar", AlterConfigOpType.SET),
    ],
)
def test_wrong_config_changes_are_refused(
    admin: AdminClient, name: str, key: str, value: str, operation: AlterConfigOpType
) -> None:
    create(admin, NewTopic(name, 1))
    with pytest.raises(KafkaException) as refused:
        alter(admin, name, entry(key, value, operation))
    assert code_of(refused.value) == KafkaError.INVALID_CONFIG


def test_configs_of_an_unknown_topic(admin: AdminClient, name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        configs_of(admin, ConfigResource.Type.TOPIC, name)
    assert code_of(refused.value) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_configs_change_the_default_of_topics(admin: AdminClient, broker: Broker, name: str) -> None:
    """Each broker describes a topic by its own settings, and librdkafka asks any: all of them are changed."""
    create(admin, NewTopic(name, 1))
    assert configs_of(admin, ConfigResource.Type.BROKER, "1")["node.id"].is_read_only

    def alter_default(operation: AlterConfigOpType, value: str | None) -> None:
        for node_id in broker.node_ids:
            change = entry("log.retention.ms", value, operation)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[change])
            admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def value_and_source() -> tuple[str, int]:
        described = configs_of(admin, ConfigResource.Type.TOPIC, name)["retention.ms"]
        return described.value, described.source

    alter_default(AlterConfigOpType.SET, "777000")
    eventually(value_and_source, ("777000", ConfigSource.DYNAMIC_BROKER_CONFIG.value))
    alter_default(AlterConfigOpType.DELETE, None)
    eventually(value_and_source, ("604800000", ConfigSource.DEFAULT_CONFIG.value))


@pytest.mark.steady
def test_the_cluster_describes_itself(admin: AdminClient, broker: Broker) -> None:
    described = admin.describe_cluster().result(WAIT_S)
    assert described.cluster_id
    assert described.controller.id in broker.node_ids
    assert [node.id for node in described.nodes] == broker.node_ids
    assert ",".join(f"{node.host}:{node.port}" for node in described.nodes) == broker.bootstrap


@pytest.mark.steady  # librdkafka asks for offsets once
def test_a_thousand_topics(admin: AdminClient, bootstrap: str, name: str) -> None:
    names = [f"{name}-{number:04}" for number in range(1000)]
    created = admin.create_topics([NewTopic(one, 1) for one in names], operation_timeout=WAIT_S)
    for future in created.values():
        future.result(WAIT_S)
    eventually(lambda: len(set(names) - set(admin.list_topics(timeout=WAIT_S).topics)), 0)
    sender = Producer({"bootstrap.servers": bootstrap})
    failures: list[KafkaError] = []
    for one in names:
        sender.produce(
            one, one.encode(), on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert sender.flush(60) == 0
    assert failures == []
    asked = {TopicPartition(one, 0): OffsetSpec.latest() for one in names}
    offsets = admin.list_offsets(asked)
    assert {future.result(WAIT_S).offset for future in offsets.values()} == {1}
    for future in admin.delete_topics(names, operation_timeout=WAIT_S).values():
        future.result(WAIT_S)
    eventually(lambda: set(names) & set(admin.list_topics(timeout=WAIT_S).topics), set())
