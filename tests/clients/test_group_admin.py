"""Groups from outside: listed, described, their offsets told, altered and deleted, members removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupListing
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError, UnknownMemberIdError

from clients.grouping import leaving, places, produce, receive, share
from harness.broker import Broker
from harness.members import CLIENTS, Committed, Member, Place
from harness.wait import WAIT_S, eventually

KINDS = {"confluent-kafka": "CLASSIC", "confluent-kafka-consumer": "CONSUMER"}
both_protocols = pytest.mark.parametrize("client", sorted(KINDS))


@pytest.fixture(scope="module")
def kafka_python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


@pytest.fixture
def group_of_yesterday(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """The name of a topic with two partitions and of a group that committed there and has no members.

    The metadata end with a zero byte: confluent-kafka adds it, and needs it when it reads them again.
    """
    topic = new_topic(partitions=2)
    produce(bootstrap, topic, partitions=2, per_partition=10)
    with leaving([CLIENTS["confluent-kafka"](bootstrap, topic, [topic])]) as members:
        share(members, places(topic, 2))
        members[0].commit({Place(topic, 0): Committed(4, "note"), Place(topic, 1): Committed(6)})
    return topic


def listed(admin: AdminClient, group: str, **filters: Any) -> ConsumerGroupListing | None:
    answer = admin.list_consumer_groups(request_timeout=WAIT_S, **filters).result(WAIT_S)
    assert not answer.errors
    found = [listing for listing in answer.valid if listing.group_id == group]
    return found[0] if found else None


def offsets(admin: AdminClient, group: str, **options: Any) -> dict[int, tuple[int, str]]:
    wanted = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(wanted, **options)[group].result(WAIT_S)
    return {found.partition: (found.offset, found.metadata or "") for found in answer.topic_partitions}


def refusal(work: Callable[[], Any]) -> int:
    with pytest.raises(KafkaException) as refused:
        work()
    return int(refused.value.args[0].code())


@both_protocols
def test_a_group_is_listed_and_described(
    broker: Broker, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], client: str
) -> None:
    topic = new_topic(partitions=4)
    settings = {"client.id": "a-client"}
    kind = ConsumerGroupType[KINDS[client]]
    other = ConsumerGroupType.CLASSIC if kind is ConsumerGroupType.CONSUMER else ConsumerGroupType.CONSUMER
    members = [CLIENTS[client](bootstrap, topic, [topic], instance=f"i-{n}", **settings) for n in range(2)]
    with leaving(members):
        share(members, places(topic, 4))

        def described() -> Any:
            return admin.describe_consumer_groups([topic])[topic].result(WAIT_S)

        eventually(lambda: described().state, ConsumerGroupState.STABLE)
        group = described()
        assert (group.group_id, group.type, group.is_simple_consumer_group) == (topic, kind, False)
        assert group.partition_assignor == ("range" if kind is ConsumerGroupType.CLASSIC else "uniform")
        assert group.coordinator.id in broker.node_ids
        assert sorted(member.group_instance_id for member in group.members) == ["i-0", "i-1"]
        assert {member.client_id for member in group.members} == {"a-client"}
        assert {member.host.strip("/") for member in group.members} == {"127.0.0.1"}
        owned = [(p.topic, p.partition) for m in group.members for p in m.assignment.topic_partitions]
        assert sorted(owned) == places(topic, 4)

        listing = listed(admin, topic)
        assert listing is not None
        assert (listing.state, listing.type) == (ConsumerGroupState.STABLE, kind)
        assert listed(admin, topic, states={ConsumerGroupState.STABLE}, types={kind}) is not None
        assert listed(admin, topic, states={ConsumerGroupState.EMPTY}) is None
        assert listed(admin, topic, types={other}) is None
        assert refusal(lambda: admin.delete_consumer_groups([topic])[topic].result(WAIT_S)) == (
            KafkaError.NON_EMPTY_GROUP
        )


def test_a_group_nobody_knows(admin: AdminClient, kafka_python: KafkaAdminClient, name: str) -> None:
    assert refusal(lambda: admin.delete_consumer_groups([name])[name].result(WAIT_S)) == (
        KafkaError.GROUP_ID_NOT_FOUND
    )
    assert offsets(admin, name) == {}
    assert listed(admin, name) is None
    with pytest.raises(GroupIdNotFoundError):
        kafka_python.delete_group_offsets(name, [kafka.TopicPartition(name, 0)])


def test_an_empty_group_keeps_its_offsets_until_it_is_deleted(
    admin: AdminClient, group_of_yesterday: str
) -> None:
    group = group_of_yesterday
    assert offsets(admin, group) == {0: (4, "note"), 1: (6, "")}
    listing = listed(admin, group, states={ConsumerGroupState.EMPTY})
    assert listing is not None
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert listed(admin, group) is None
    assert offsets(admin, group) == {}


def test_offsets_are_altered_where_nobody_reads(
    bootstrap: str, admin: AdminClient, group_of_yesterday: str
) -> None:
    group = group_of_yesterday

    def alter(offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(group, 0, offset)])
        answer = admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S)
        for done in answer.topic_partitions:
            if done.error is not None:
                raise KafkaException(done.error)

    alter(9)
    assert offsets(admin, group) == {0: (9, ""), 1: (6, "")}
    with leaving([CLIENTS["confluent-kafka"](bootstrap, group, [group])]) as members:
        receive(members, [b"0/9", *(b"1/%d" % number for number in range(6, 10))])
        assert refusal(lambda: alter(3)) == KafkaError.UNKNOWN_MEMBER_ID
        assert offsets(admin, group) == {0: (9, ""), 1: (6, "")}


def test_kafka_python_deletes_and_resets_offsets(
    bootstrap: str, admin: AdminClient, kafka_python: KafkaAdminClient, group_of_yesterday: str
) -> None:
    group = group_of_yesterday
    first, second = kafka.TopicPartition(group, 0), kafka.TopicPartition(group, 1)
    assert kafka_python.list_group_offsets([group])[group] == {
        first: kafka.OffsetAndMetadata(4, "note\0", -1),
        second: kafka.OffsetAndMetadata(6, "\0", -1),
    }
    assert kafka_python.delete_group_offsets(group, [second]) == {second: NoError}
    assert offsets(admin, group) == {0: (4, "note")}
    reset = kafka_python.reset_group_offsets(group, {first: OffsetSpec.EARLIEST, second: 7})
    assert {place: (done["error"], done["offset"]) for place, done in reset.items()} == {
        first: (NoError, 0),
        second: (NoError, 7),
    }
    with leaving([CLIENTS["confluent-kafka"](bootstrap, group, [group])]) as members:
        receive(
            members,
            [b"0/%d" % number for number in range(10)] + [b"1/%d" % number for number in range(7, 10)],
        )
        subscribed = kafka_python.delete_group_offsets(group, [first])
        assert subscribed == {first: GroupSubscribedToTopicError}
        altered = kafka_python.alter_group_offsets(group, {first: kafka.OffsetAndMetadata(1, "", -1)})
        assert altered == {first: UnknownMemberIdError}


def test_a_static_member_that_went_home_is_removed(
    bootstrap: str, kafka_python: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    """Its partitions would wait for it until the session is over, which is longer than this test waits."""
    topic = new_topic(partitions=2)
    settings = {"session.timeout.ms": 120_000}

    def one(instance: str) -> Member:
        return CLIENTS["confluent-kafka"](bootstrap, topic, [topic], instance=instance, **settings)

    with leaving([one("stays"), one("leaves")]) as members:
        share(members, places(topic, 2))
        members.pop().close()
        described = kafka_python.describe_groups([topic])[topic]
        assert sorted(member["group_instance_id"] for member in described["members"]) == ["leaves", "stays"]
        removed = kafka_python.remove_group_members(topic, [MemberToRemove(group_instance_id="leaves")])
        assert list(removed.values()) == [NoError]
        share(members, places(topic, 2))


def test_aiokafka_sees_the_same(bootstrap: str, group_of_yesterday: str) -> None:
    group = group_of_yesterday

    async def story() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            assert (group, "consumer") in await client.list_consumer_groups()
            (answer,) = await client.describe_consumer_groups([group])
            (described,) = answer.groups
            assert described[:4] == (0, group, "Empty", "consumer")
            found = await client.list_consumer_group_offsets(group)
            assert {place.partition: tuple(committed) for place, committed in found.items()} == {
                0: (4, "note\0"),
                1: (6, "\0"),
            }
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
