"""Our admin clients, blocking and asyncio's: what they order happens, and what they tell is what
confluent-kafka's admin says about the same broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from clients.grouping import leaving, places, produce, share
from clients.headrace_admins import opened
from clients.samples import BASE_MS
from harness.broker import Broker
from harness.members import CLIENTS
from harness.wait import WAIT_S, eventually
from headrace.client.admin.configs import Append, Resource, ResourceKind, Subtract
from headrace.client.admin.offsets import OffsetAt
from headrace.client.admin.replicas import Replica
from headrace.client.admin.topics import NewTopic
from headrace.client.aio.admin import Admin as AsyncAdmin
from headrace.client.cluster import TopicPartition
from headrace.client.errors import Closed, InvalidInput, KafkaError, PartlyFailed, TimedOut, Unreachable
from headrace.client.membership.events import CommittedOffset
from headrace.client.threads.admin import Admin

SHELLS = ("threads", "aio")


@pytest.fixture(scope="module", params=SHELLS)
def ours(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Any]:
    """Both shells, one after the other."""
    with opened(request.param, bootstrap) as admin:
        yield admin


@pytest.fixture
def filled(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """A topic with two partitions; three records in the first, the middle one the latest by its timestamp."""
    topic = new_topic(partitions=2)
    sender = Producer({"bootstrap.servers": bootstrap})
    for timestamp_ms in (BASE_MS, BASE_MS + 9000, BASE_MS + 3000):
        sender.produce(topic, b"value", partition=0, timestamp=timestamp_ms)
    assert sender.flush(WAIT_S) == 0
    return topic


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.name


# --- topics ----------------------------------------------------------------------------------------------


@pytest.mark.steady
def test_a_topic_is_told_as_confluent_tells_it(
    ours: Any, broker: Broker, admin: AdminClient, name: str
) -> None:
    created = ours.create_topic(name, partitions=3, configs={"retention.ms": 60_000})
    assert (created.partitions, created.replication_factor) == (3, len(broker.node_ids))
    assert created.configs["retention.ms"] == "60000"
    mine = ours.describe_topic(name)
    theirs = admin.describe_topics(TopicCollection([name]))[name].result(WAIT_S)
    # librdkafka prints the bytes with other letters than Kafka does
    assert mine.topic_id == created.topic_id == str(theirs.topic_id).replace("+", "-").replace("/", "_")
    assert [(one.partition, one.leader, one.replicas, one.isr, one.offline) for one in mine.partitions] == [
        (one.id, one.leader.id, [node.id for node in one.replicas], [node.id for node in one.isr], [])
        for one in theirs.partitions
    ]
    assert ours.describe_topics(ids=[mine.topic_id]) == {mine.topic_id: mine}
    assert [topic for topic in ours.list_topics() if topic.name == name] == [mine]
    assert {topic.name for topic in ours.list_topics()} == set(admin.list_topics(timeout=WAIT_S).topics)
    assert not any(topic.is_internal for topic in ours.list_topics(internal=False))


@pytest.mark.steady
def test_some_of_many_topics_fail(ours: Any, name: str) -> None:
    ours.create_topic(f"{name}-old")
    wanted = [
        NewTopic(f"{name}-new", assignments=[[1], [1]]),
        f"{name}-old",
        NewTopic(f"{name}-wide", replication_factor=4),
        NewTopic(f"{name}-odd", configs={"no.such.key": "1"}),
        "white space",
    ]
    with pytest.raises(PartlyFailed) as partly:
        ours.create_topics(wanted)
    assert {topic: error.name for topic, error in partly.value.failures.items()} == {
        f"{name}-old": "TOPIC_ALREADY_EXISTS",
        f"{name}-wide": "INVALID_REPLICATION_FACTOR",
        f"{name}-odd": "INVALID_CONFIG",
        "white space": "INVALID_TOPIC_EXCEPTION",
    }
    assert {topic: made.partitions for topic, made in partly.value.results.items()} == {f"{name}-new": 2}
    assert len(ours.describe_topic(f"{name}-new").partitions) == 2


def test_a_topic_that_is_only_tried_out(ours: Any, name: str) -> None:
    assert ours.create_topic(name, partitions=5, validate_only=True).partitions == 5
    assert refusal(lambda: ours.describe_topic(name)) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_topics_are_deleted_by_name_and_by_id(ours: Any, name: str) -> None:
    made = ours.create_topics([f"{name}-a", f"{name}-b"])
    ours.delete_topics([f"{name}-a"], ids=[made[f"{name}-b"].topic_id])
    names = {f"{name}-a", f"{name}-b"}
    eventually(lambda: names & {topic.name for topic in ours.list_topics()}, set())
    assert refusal(lambda: ours.delete_topic(f"{name}-a")) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert refusal(lambda: ours.delete_topics(ids=[made[f"{name}-b"].topic_id])) == "UNKNOWN_TOPIC_ID"


@pytest.mark.steady
def test_partitions_are_added(ours: Any, broker: Broker, name: str) -> None:
    ours.create_topic(name, partitions=1)
    ours.create_partitions({name: 2}, validate_only=True)
    ours.create_partitions({name: 4}, assignments={name: [broker.node_ids] * 3})
    assert len(ours.describe_topic(name).partitions) == 4
    assert refusal(lambda: ours.create_partitions({name: 2})) == "INVALID_PARTITIONS"


# --- offsets and records ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (OffsetAt.EARLIEST, OffsetSpec.earliest()),
        (OffsetAt.LATEST, OffsetSpec.latest()),
        (OffsetAt.MAX_TIMESTAMP, OffsetSpec.max_timestamp()),
        (BASE_MS + 1000, OffsetSpec.for_timestamp(BASE_MS + 1000)),
        (BASE_MS + 99_000, OffsetSpec.for_timestamp(BASE_MS + 99_000)),
    ],
)
def test_offsets_are_confluents(ours: Any, admin: AdminClient, filled: str, mine: Any, theirs: Any) -> None:
    asked = TheirPartition(filled, 0)
    answer = admin.list_offsets({asked: theirs})[asked].result(WAIT_S)
    found = ours.list_offsets({(filled, 0): mine})[filled, 0]
    assert (-1 if found.offset is None else found.offset) == answer.offset
    assert (-1 if found.timestamp_ms is None else found.timestamp_ms) == answer.timestamp


def test_offsets_of_many_partitions_by_time(ours: Any, filled: str) -> None:
    moment = datetime.fromtimestamp((BASE_MS + 1) / 1000, UTC)
    found = ours.list_offsets({(filled, 0): moment, (filled, 1): OffsetAt.LATEST})
    assert {at: told.offset for at, told in found.items()} == {
        TopicPartition(filled, 0): 1,
        TopicPartition(filled, 1): 0,
    }
    assert found[filled, 0].timestamp_ms == BASE_MS + 9000


def test_offsets_of_what_is_not_there(ours: Any, filled: str) -> None:
    assert refusal(lambda: ours.list_offsets({(filled, 7): OffsetAt.LATEST})) == "UNKNOWN_TOPIC_OR_PARTITION"
    with pytest.raises(PartlyFailed, match="no such topic") as partly:
        ours.list_offsets({(filled, 0): OffsetAt.LATEST, ("nowhere", 0): 0, ("nowhere", 1): 0})
    assert {at: told.offset for at, told in partly.value.results.items()} == {TopicPartition(filled, 0): 3}


def test_records_are_deleted(ours: Any, filled: str) -> None:
    assert ours.delete_records({(filled, 0): 2}) == {TopicPartition(filled, 0): 2}
    assert ours.list_offsets({(filled, 0): OffsetAt.EARLIEST})[filled, 0].offset == 2
    assert refusal(lambda: ours.delete_records({(filled, 0): 4})) == "OFFSET_OUT_OF_RANGE"
    assert ours.delete_records({(filled, 0): -1}) == {TopicPartition(filled, 0): 3}


# --- configs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_settings_are_told_as_confluent_tells_them(
    ours: Any, admin: AdminClient, filled: str, kind: str
) -> None:
    topic = kind == "topic"
    resource = Resource.topic(filled) if topic else Resource.broker(1)
    asked = ConfigResource(ConfigResource.Type.TOPIC if topic else ConfigResource.Type.BROKER, resource.name)
    theirs = admin.describe_configs([asked])[asked].result(WAIT_S)
    mine = ours.describe_config(resource)
    assert {key: (one.value, one.is_read_only, one.is_secret) for key, one in mine.items()} == {
        key: (one.value, one.is_read_only, one.is_sensitive) for key, one in theirs.items()
    }


def test_settings_are_set_appended_subtracted_and_put_back(ours: Any, filled: str) -> None:
    resource = Resource.topic(filled)

    def values(*keys: str) -> list[str | None]:
        found = ours.describe_config(resource, keys)
        return [found[key].value for key in keys]

    changes: dict[str, object] = {"retention.ms": 1000, "cleanup.policy": Append("compact")}
    ours.alter_config(resource, changes, validate_only=True)
    ours.alter_config(resource, changes)
    eventually(lambda: values("retention.ms", "cleanup.policy"), ["1000", "delete,compact"])

    def policy() -> tuple[str, bool, str | None]:
        told = ours.describe_config(resource)["cleanup.policy"]
        return told.source, told.is_override, told.default

    eventually(policy, ("topic", True, "delete"))  # each question may reach another broker
    ours.alter_configs({resource: {"retention.ms": None, "cleanup.policy": Subtract("delete")}})
    eventually(lambda: values("retention.ms", "cleanup.policy"), ["604800000", "compact"])
    assert refusal(lambda: ours.alter_config(resource, {"retention.ms": "soon"})) == "INVALID_CONFIG"
    assert refusal(lambda: ours.describe_config(Resource.topic("nowhere"))) == "UNKNOWN_TOPIC_OR_PARTITION"
    with pytest.raises(InvalidInput, match=r"has no setting 'no\.such'"):
        ours.describe_config(resource, ["no.such"])


def test_settings_of_groups_and_brokers(ours: Any, name: str) -> None:
    group = Resource.group(name)
    ours.alter_config(group, {"consumer.session.timeout.ms": 50_000})
    eventually(lambda: ours.describe_config(group)["consumer.session.timeout.ms"].value, "50000")
    assert group in ours.list_config_resources([ResourceKind.GROUP])
    assert Resource.broker(1) in ours.list_config_resources()

    def id_is_read_only() -> bool | None:
        try:
            found = ours.describe_configs([group, Resource.broker(1), Resource.all_brokers()])
        except PartlyFailed:
            return None  # only the broker itself can tell, and one that was killed is gone for a moment
        return bool(found[Resource.broker(1)]["node.id"].is_read_only)

    eventually(id_is_read_only, True)
    ours.alter_config(group, {"consumer.session.timeout.ms": None})
    with pytest.raises(InvalidInput, match="no broker 99; the brokers are 1"):
        ours.describe_config(Resource.broker(99))


# --- groups ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "kind"), [("confluent-kafka", "classic"), ("confluent-kafka-consumer", "consumer")]
)
def test_a_group_with_members(
    ours: Any, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], client: str, kind: str
) -> None:
    topic = new_topic(partitions=4)
    produce(bootstrap, topic, partitions=4, per_partition=5)
    with leaving([CLIENTS[client](bootstrap, topic, [topic]) for _ in range(2)]) as members:
        share(members, places(topic, 4))
        eventually(lambda: ours.describe_group(topic).state, "Stable")
        group = ours.describe_group(topic)
        theirs = admin.describe_consumer_groups([topic])[topic].result(WAIT_S)
        assert (group.type, group.assignor) == (kind, theirs.partition_assignor)
        assert group.coordinator == theirs.coordinator.id
        assert {
            one.member_id: (one.client_id, one.host, [at.partition for at in one.assignment])
            for one in group.members
        } == {
            one.member_id: (
                one.client_id,
                one.host.removeprefix("/"),
                sorted(at.partition for at in one.assignment.topic_partitions),
            )
            for one in theirs.members
        }
        (listed,) = [one for one in ours.list_groups(states=["Stable"], types=[kind]) if one.group == topic]
        assert (listed.type, listed.protocol_type) == (kind, "consumer")
        assert topic not in [one.group for one in ours.list_groups(states=["Empty"])]
        assert refusal(lambda: ours.delete_group(topic)) == "NON_EMPTY_GROUP"
        assert refusal(lambda: ours.alter_group_offsets(topic, {(topic, 0): 1})) == "UNKNOWN_MEMBER_ID"
        assert refusal(lambda: ours.delete_group_offsets(topic, [(topic, 0)])) == "GROUP_SUBSCRIBED_TO_TOPIC"
        owners = {one.at.partition: one.member for one in ours.group_lag(topic)}
        assert owners == {at.partition: one.member_id for one in group.members for at in one.assignment}


def test_offsets_of_a_group_without_members(
    ours: Any, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    produce(bootstrap, topic, partitions=3, per_partition=10)
    ours.alter_group_offsets(topic, {(topic, 0): 4, (topic, 1): CommittedOffset(7, metadata="note")})
    asked = ConsumerGroupTopicPartitions(topic)
    theirs = admin.list_consumer_group_offsets([asked])[topic].result(WAIT_S)
    mine = ours.list_group_offsets(topic)
    assert {at.partition: one.offset for at, one in mine.items()} == {
        at.partition: at.offset for at in theirs.topic_partitions
    }
    assert mine[topic, 1] == CommittedOffset(7, -1, "note")
    assert {one.at.partition: one.lag for one in ours.group_lag(topic)} == {0: 6, 1: 3}
    assert ours.lag_of_groups()[topic] == ours.group_lag(topic)
    ours.delete_group_offsets(topic, [(topic, 0)])
    assert list(ours.list_group_offsets(topic)) == [TopicPartition(topic, 1)]
    assert (
        refusal(lambda: ours.alter_group_offsets(topic, {("nowhere", 0): 0})) == "UNKNOWN_TOPIC_OR_PARTITION"
    )
    ours.delete_groups([topic])
    assert refusal(lambda: ours.describe_group(topic)) == "GROUP_ID_NOT_FOUND"
    assert refusal(lambda: ours.delete_group(topic)) == "GROUP_ID_NOT_FOUND"
    assert ours.list_offsets_of_groups([topic, "nobody"]) == {topic: {}, "nobody": {}}


def test_members_are_removed(ours: Any, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    # long enough that only a removal ends it
    settings = {"session.timeout.ms": 120_000}
    member = CLIENTS["confluent-kafka"](bootstrap, topic, [topic], instance="static", **settings)
    with leaving([member]) as members:
        share(members, places(topic, 2))
    # a static member keeps its place when it goes, until it is removed
    assert [one.instance_id for one in ours.describe_group(topic).members] == ["static"]
    assert refusal(lambda: ours.remove_members(topic, ["nobody"])) == "UNKNOWN_MEMBER_ID"
    assert ours.remove_members(topic) == ["static"]
    assert ours.describe_group(topic).members == []


# --- transactions ----------------------------------------------------------------------------------------


@pytest.fixture
def transaction(bootstrap: str, new_topic: Callable[..., str]) -> tuple[str, Producer]:
    """The name of a topic and of a transactional id that has a transaction open in it."""
    topic = new_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(WAIT_S) == 0
    return topic, producer


def committed_end(ours: Any, topic: str) -> int:
    found = ours.list_offsets({(topic, 1): OffsetAt.LATEST}, isolation_level="read_committed")
    return int(found[topic, 1].offset)


def test_a_transaction_is_told_by_coordinator_and_partition(
    ours: Any, broker: Broker, transaction: tuple[str, Producer]
) -> None:
    topic, producer = transaction
    (listed,) = [one for one in ours.list_transactions() if one.transactional_id == topic]
    assert listed.state == "Ongoing"
    assert listed.coordinator in broker.node_ids
    assert listed in ours.list_transactions(states=["Ongoing"], producer_ids=[listed.producer_id])
    assert ours.list_transactions(pattern=f"^{topic}$") == [listed]
    described = ours.describe_transaction(topic)
    assert described.producer_id == listed.producer_id
    assert described.partitions == [TopicPartition(topic, 1)]
    assert described.started_ms is not None
    (state,) = ours.describe_producers([(topic, 0), (topic, 1)])[topic, 1]
    assert (state.producer_id, state.producer_epoch) == (described.producer_id, described.producer_epoch)
    (opened,) = ours.find_open_transactions([(topic, 0), (topic, 1)])
    assert (opened.at, opened.start_offset) == (TopicPartition(topic, 1), 0)
    later_ms = opened.last_timestamp_ms + 1
    # somebody will end it: it does not hang
    assert ours.find_hanging_transactions(before_ms=later_ms, partitions=[(topic, 1)]) == []
    assert committed_end(ours, topic) == 0
    producer.commit_transaction(WAIT_S)
    eventually(lambda: committed_end(ours, topic), 2)
    assert refusal(lambda: ours.describe_transaction("nobody")) == "TRANSACTIONAL_ID_NOT_FOUND"


def test_a_transaction_is_aborted_in_its_partition(ours: Any, transaction: tuple[str, Producer]) -> None:
    topic, _ = transaction
    (opened,) = ours.find_open_transactions([(topic, 1)])
    ours.abort_transaction(opened)
    assert ours.find_open_transactions([(topic, 1)]) == []
    assert committed_end(ours, topic) == 2
    ours.fence_producers(topic)


def test_a_fenced_producer_can_do_nothing_more(ours: Any, transaction: tuple[str, Producer]) -> None:
    topic, producer = transaction
    before = ours.describe_transaction(topic)
    fenced = ours.fence_producers([topic])[topic]
    assert (fenced.producer_id, fenced.epoch) > (before.producer_id, before.producer_epoch)
    eventually(lambda: committed_end(ours, topic), 2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)


# --- the cluster -----------------------------------------------------------------------------------------


def test_the_cluster_is_told_as_confluent_tells_it(ours: Any, admin: AdminClient) -> None:
    theirs = admin.describe_cluster().result(WAIT_S)
    mine = ours.describe_cluster()
    assert (mine.cluster_id, mine.controller_id) == (theirs.cluster_id, theirs.controller.id)
    assert [(one.broker_id, *one.address) for one in mine.brokers] == [
        (node.id, node.host, node.port) for node in theirs.nodes
    ]
    assert ours.describe_cluster(include_fenced=True).brokers == mine.brokers
    assert ours.list_brokers() == mine.brokers


def test_features_and_the_quorum(ours: Any, broker: Broker) -> None:
    features = ours.describe_features()
    level = features.finalized["metadata.version"].highest
    assert features.supported["metadata.version"].lowest <= level
    assert refusal(lambda: ours.update_features({"metadata.version": 9999}, validate_only=True))
    quorum = ours.describe_quorum()
    assert quorum.leader_id in broker.node_ids
    assert [one.replica_id for one in quorum.voters] == broker.node_ids
    (leader,) = [one for one in quorum.voters if one.replica_id == quorum.leader_id]
    assert leader.log_end_offset >= quorum.high_watermark > 0


@pytest.mark.steady
def test_log_directories(ours: Any, filled: str, broker: Broker) -> None:
    directories = ours.describe_log_dirs()
    assert [directory.broker_id for directory in directories] == broker.node_ids
    for directory in directories:
        assert directory.error is None
        assert str(broker.directory) in directory.path
        assert directory.partition_bytes[filled, 0] > 0
        assert directory.partition_bytes[filled, 1] == 0
        assert directory.total_bytes >= directory.usable_bytes > 0
    directory = directories[0]
    here = Replica(filled, 0, broker_id=directory.broker_id)
    ours.alter_replica_log_dirs({here: directory.path})
    assert refusal(lambda: ours.alter_replica_log_dirs({here: "/nowhere"})) == "LOG_DIR_NOT_FOUND"


def test_leaders_and_reassignments(ours: Any, filled: str) -> None:
    assert ours.elect_leaders([(filled, 0)]) == {TopicPartition(filled, 0): False}
    with pytest.raises(KafkaError, match="partition nowhere-0"):
        ours.elect_leaders([("nowhere", 0)])
    assert ours.list_reassignments() == {}
    assert ours.list_reassignments([(filled, 0)]) == {}


# --- many at once, and trouble ---------------------------------------------------------------------------


def test_many_threads_share_a_client(bootstrap: str, filled: str) -> None:
    with Admin(bootstrap) as admin, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: admin.list_offsets({(filled, 0): OffsetAt.LATEST}), range(50)))
    assert {answer[TopicPartition(filled, 0)].offset for answer in answers} == {3}


def test_many_tasks_share_a_client(bootstrap: str, filled: str) -> None:
    async def main() -> None:
        async with AsyncAdmin(bootstrap) as admin:
            asked = [admin.list_offsets({(filled, 0): OffsetAt.LATEST}) for _ in range(50)]
            answers = await asyncio.gather(*asked)
            assert {answer[TopicPartition(filled, 0)].offset for answer in answers} == {3}

    asyncio.run(main())


def test_a_task_that_gives_up_leaves_the_client_usable(bootstrap: str) -> None:
    async def main() -> None:
        async with AsyncAdmin(bootstrap) as admin:
            task = asyncio.create_task(admin.describe_cluster())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await admin.describe_cluster()).brokers

    asyncio.run(main())


@pytest.mark.parametrize("shell", SHELLS)
def test_nobody_is_there(shell: str) -> None:
    with opened(shell, "127.0.0.1:1", default_api_timeout_ms=300) as nobody, pytest.raises(Unreachable):
        nobody.describe_cluster()


def test_no_time_at_all(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        with pytest.raises(TimedOut, match="timed out while describing the cluster"):
            admin.within(0).describe_cluster()
        assert admin.describe_cluster().brokers


def test_a_closed_client(bootstrap: str) -> None:
    admin = Admin(bootstrap)
    admin.close()
    admin.close()
    with pytest.raises(Closed):
        admin.describe_cluster()
