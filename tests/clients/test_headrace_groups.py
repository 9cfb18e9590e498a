"""Our consumers as members of a group: commits, listeners, and groups with members of other clients.

The stories that every client plays are in test_groups.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic

from clients.both_shells import SHELLS, end, read, values
from clients.grouping import leaving, places, produce, receive, share
from harness.members import ASSIGNORS, CLIENTS, HEARTBEAT_MS, Committed, Member
from harness.wait import WAIT_S
from headrace import (
    CommittedOffset,
    KafkaError,
    Message,
    Producer,
    RebalanceListener,
    TopicPartition,
    TransactionMustAbort,
)

PROTOCOLS = ("classic", "consumer")
# (the assignor or the protocol, our member, another's)
MIXES = [
    *((rule, "headrace", other) for rule in ASSIGNORS for other in ASSIGNORS[rule] if other != "headrace"),
    ("consumer", "headrace-consumer", "confluent-kafka-consumer"),
]
NewConsumer = Callable[..., Any]
NewTopic = Callable[..., str]


@pytest.fixture(params=SHELLS)
def new_consumer(request: pytest.FixtureRequest, bootstrap: str, name: str) -> Iterator[NewConsumer]:
    """Members of one group, named as the test's topic."""
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        usual = {
            "group_id": name,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "fetch_max_wait_ms": 50,
        }
        made.append(SHELLS[request.param](bootstrap, **usual | settings))
        return made[-1]

    yield make
    for consumer in made:
        end(consumer)


@pytest.mark.parametrize(("rule", "ours", "theirs"), MIXES)
def test_a_group_of_two_kinds(bootstrap: str, new_topic: NewTopic, rule: str, ours: str, theirs: str) -> None:
    """Each of them leads once: what one writes into its subscription, the other reads."""
    topic = new_topic(partitions=6)
    every = places(topic, 6)

    def join(client: str) -> Member:
        return CLIENTS[client](bootstrap, topic, [topic], **ASSIGNORS.get(rule, {}).get(client, {}))

    with leaving([join(ours)]) as members:
        share(members, every)
        members.append(join(theirs))
        share(members, every)
        receive(members, produce(bootstrap, topic, partitions=6, per_partition=2))
        members.pop(0).close()
        share(members, every)
        members.append(join(ours))
        share(members, every)


@pytest.mark.parametrize("rule", ["sticky", "cooperative-sticky"])
def test_shares_that_stay(bootstrap: str, new_topic: NewTopic, rule: str) -> None:
    topic = new_topic(partitions=6)
    every = places(topic, 6)
    settings = {"partition_assignment_strategy": rule}
    with leaving([CLIENTS["headrace"](bootstrap, topic, [topic], **settings)]) as members:
        share(members, every)
        for _ in range(2):
            kept = [member.owned for member in members]
            members.append(CLIENTS["headrace"](bootstrap, topic, [topic], **settings))
            share(members, every)
            assert all(member.owned < before for member, before in zip(members, kept))
        if rule == "cooperative-sticky":
            moved = [sum(len(gone) for how, gone in member.moves if how == "gave up") for member in members]
            assert moved == [4, 1, 0] or sum(moved) <= 5, "only what has to move"
        members.pop(0).close()
        share(members, every)


@pytest.mark.parametrize("client", ["headrace", "headrace-consumer"])
def test_offsets_are_the_groups(bootstrap: str, new_topic: NewTopic, client: str) -> None:
    """One client reads what another one has committed. Notes are left out: confluent-kafka writes a zero byte
    behind its own, and reads those of others until it finds one.
    """
    topic = new_topic(partitions=2)
    first, second = places(topic, 2)
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        share(members, [first, second])
        members[0].commit({first: Committed(3), second: Committed(4)})
    other = "confluent-kafka-consumer" if client == "headrace-consumer" else "confluent-kafka"
    with leaving([CLIENTS[other](bootstrap, topic, [topic])]) as members:
        share(members, [first, second])
        assert members[0].committed(first) == Committed(3)
        assert members[0].committed(second) == Committed(4)
        members[0].commit({first: Committed(5)})
    with leaving([CLIENTS[client](bootstrap, topic, [topic])]) as members:
        found = members[0].committed(first)
        assert found is not None
        assert found.offset == 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits(bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer, protocol: str) -> None:
    topic = new_topic()
    at = TopicPartition(topic, 0)
    produce(bootstrap, topic, partitions=1, per_partition=5)
    consumer = new_consumer(group_protocol=protocol, enable_auto_commit=False)
    consumer.subscribe([topic])
    messages = read(consumer, 5)
    assert consumer.committed([at]) == {at: None}
    assert consumer.commit(messages[1])[at].offset == 2
    assert consumer.committed([at])[at].offset == 2
    assert consumer.commit()[at].offset == 5
    consumer.commit({at: CommittedOffset(3, metadata="von Hand, größer")})
    assert consumer.committed([at])[at] == (3, -1, "von Hand, größer")
    told: list[Any] = []
    for offset in (1, 4):
        consumer.commit_async({at: offset}, lambda offsets, error: told.append((offsets[at].offset, error)))
    assert consumer.commit(messages[2])[at].offset == 3
    assert told == [(1, None), (4, None)], "in the order of the asking, before a later one returns"
    with pytest.raises(KafkaError) as refused:
        consumer.commit({at: CommittedOffset(1, metadata="x" * 5000)})
    assert refused.value.name == "OFFSET_METADATA_TOO_LARGE"
    assert consumer.group_metadata().group_id == topic
    assert consumer.group_metadata().generation > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whoever_is_no_member_does_not_commit_for_those_who_are(
    bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer, protocol: str
) -> None:
    topic = new_topic()
    at = TopicPartition(topic, 0)
    produce(bootstrap, topic, partitions=1, per_partition=3)
    diary = Diary()
    member = new_consumer(group_protocol=protocol)
    member.subscribe([topic], listener=diary)
    assert len(read(member, 3)) == 3
    outsider = new_consumer(group_protocol=protocol, enable_auto_commit=False)
    outsider.assign({at: 1})
    with pytest.raises(KafkaError) as refused:
        outsider.commit({at: 1})
    assert refused.value.name == "UNKNOWN_MEMBER_ID"
    assert len(read(outsider, 2)) == 2
    assert member.poll(0.2) == []
    assert diary.pages == [("assigned", [0])], "nobody has joined"


def test_offsets_that_are_committed_with_a_transaction(
    bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    at = TopicPartition(topic, 0)
    produce(bootstrap, topic, partitions=1, per_partition=5)
    consumer = new_consumer(enable_auto_commit=False, max_poll_records=3)
    consumer.subscribe([topic])
    with Producer(bootstrap, transactional_id=topic) as producer:
        assert len(read(consumer, 3)) == 3
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets(consumer.positions(), consumer)
        producer.abort_transaction()
        assert consumer.committed([at]) == {at: None}
        with producer.transaction():
            producer.send_offsets(consumer.positions(), consumer)
        assert consumer.committed([at])[at].offset == 3
        membership = consumer.group_metadata()
        consumer.close()
        successor = new_consumer(enable_auto_commit=False)
        successor.subscribe([topic])
        assert [message.offset for message in read(successor, 2)] == [3, 4]
        producer.begin_transaction()
        with pytest.raises(TransactionMustAbort) as refused:  # a zombie's offsets do not count
            producer.send_offsets({at: 1}, membership)
        assert isinstance(refused.value.__cause__, KafkaError)
        assert refused.value.__cause__.name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
        producer.abort_transaction()
    assert successor.committed([at])[at].offset == 3


class Diary(RebalanceListener):
    """Commits what was read when partitions go."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, list[int]]] = []

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.pages.append(("assigned", [at.partition for at in partitions]))

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> Any:
        self.pages.append(("revoked", [at.partition for at in partitions]))
        return consumer.commit()  # a coroutine with asyncio


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_may_commit(
    bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer, protocol: str
) -> None:
    topic = new_topic(partitions=2)
    sent = produce(bootstrap, topic, partitions=2, per_partition=5)
    diary = Diary()
    consumer = new_consumer(group_protocol=protocol, enable_auto_commit=False)
    consumer.subscribe([topic], listener=diary)
    assert sorted(values(read(consumer, 10))) == sorted(sent)
    consumer.unsubscribe()
    assert diary.pages == [("assigned", [0, 1]), ("revoked", [0, 1])]
    assert consumer.assignment == frozenset()
    consumer.subscribe([topic], listener=diary)
    later = produce(bootstrap, topic, partitions=2, per_partition=1, first=5)
    assert sorted(values(read(consumer, 2))) == sorted(later), "the listener's commit counts"
    consumer.close()
    assert diary.pages[2:] == [("assigned", [0, 1]), ("revoked", [0, 1])]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_may_seek(
    bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer, protocol: str
) -> None:
    """It is told before the first message, and where it seeks to counts more than what is committed."""
    topic = new_topic()
    produce(bootstrap, topic, partitions=1, per_partition=5)
    consumer = new_consumer(group_protocol=protocol)
    consumer.subscribe([topic], on_assign=lambda member, partitions: member.seek(partitions[0], 3))
    assert [message.offset for message in read(consumer, 2)] == [3, 4]
    consumer.close()
    again = new_consumer(group_protocol=protocol)
    again.subscribe([topic], on_assign=lambda member, partitions: member.seek(partitions[0], 1))
    assert [message.offset for message in read(again, 4)] == [1, 2, 3, 4]


def test_a_listener_that_fails_does_not_hold_the_group_up(
    bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)

    def fail(member: Any, partitions: list[TopicPartition]) -> None:
        raise RuntimeError(f"cannot give up {len(partitions)}")

    consumer = new_consumer()
    consumer.subscribe([topic], on_revoke=fail)
    produce(bootstrap, topic, partitions=2, per_partition=1)
    read(consumer, 2)
    with pytest.raises(RuntimeError, match="cannot give up 2"):
        consumer.unsubscribe()
    other = new_consumer()
    other.subscribe([topic])
    produce(bootstrap, topic, partitions=2, per_partition=1, first=1)
    assert len(read(other, 2)) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_patterns(
    bootstrap: str, admin: AdminClient, name: str, new_consumer: NewConsumer, protocol: str
) -> None:
    wanted, unwanted = f"{name}-eu", f"{name}-us"
    topics = [ConfluentTopic(topic, 1) for topic in (wanted, unwanted)]
    for created in admin.create_topics(topics, operation_timeout=WAIT_S).values():
        created.result(WAIT_S)
    for topic in (wanted, unwanted):
        produce(bootstrap, topic, partitions=1, per_partition=1)
    consumer = new_consumer(group_protocol=protocol)
    consumer.subscribe(pattern=f"{name}-e.*")
    assert [message.topic for message in read(consumer, 1)] == [wanted]
    assert consumer.assignment == {TopicPartition(wanted, 0)}


def test_the_broker_matches_patterns(bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    topic = new_topic()
    produce(bootstrap, topic, partitions=1, per_partition=1)
    consumer = new_consumer(group_protocol="consumer")
    consumer.subscribe(broker_pattern=f"{topic[:-1]}[{topic[-1]}]")
    assert [message.topic for message in read(consumer, 1)] == [topic]


def test_a_topic_that_comes_later(
    bootstrap: str, admin: AdminClient, name: str, new_consumer: NewConsumer
) -> None:
    consumer = new_consumer(allow_auto_create_topics=False, metadata_max_age_ms=100)
    consumer.subscribe([name])
    assert consumer.poll(0.1) == []
    admin.create_topics([ConfluentTopic(name, 1)], operation_timeout=WAIT_S)[name].result(WAIT_S)
    produce(bootstrap, name, partitions=1, per_partition=1)
    found: list[Message] = read(consumer, 1)
    assert [(message.topic, message.offset) for message in found] == [(name, 0)]
