"""Transactions with confluent-kafka: all or nothing, over partitions and offsets; zombies and time limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition

from clients.grouping import leaving, produce, receive
from clients.reading import read_all
from clients.transactions import ends, offset_of, send, transactional
from harness.members import ConfluentMember, Place
from harness.wait import WAIT_S, eventually


@pytest.fixture(scope="module")
def kafka_python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def test_the_committed_is_seen_and_the_aborted_is_not(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    sender = transactional(bootstrap, topic)
    for number in range(6):
        sender.begin_transaction()
        for partition in range(2):
            send(sender, topic, b"%d" % number, b"%d again" % number, partition=partition)
        if number % 3 == 1:
            sender.abort_transaction(WAIT_S)
        else:
            sender.commit_transaction(WAIT_S)
    expected = [b"%d%s" % (number, again) for number in (0, 2, 3, 5) for again in (b"", b" again")]
    everything = [b"%d%s" % (number, again) for number in range(6) for again in (b"", b" again")]
    for partition in range(2):
        assert read_all(bootstrap, topic, partition, "read_committed") == expected
        assert read_all(bootstrap, topic, partition, "read_uncommitted") == everything


def test_an_open_transaction_holds_back_what_follows(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    first, second = transactional(bootstrap, f"{topic}-1"), transactional(bootstrap, f"{topic}-2")
    produce(bootstrap, topic, partitions=1, per_partition=2)
    assert ends(admin, topic) == (2, 2)
    first.begin_transaction()
    send(first, topic, b"first")
    second.begin_transaction()
    send(second, topic, b"second")
    produce(bootstrap, topic, partitions=1, per_partition=1, first=2)
    assert ends(admin, topic) == (2, 5)
    second.commit_transaction(WAIT_S)
    eventually(lambda: ends(admin, topic), (2, 6))  # markers follow the answer
    assert read_all(bootstrap, topic, 0, "read_committed") == [b"0/0", b"0/1"]
    assert len(read_all(bootstrap, topic, 0, "read_uncommitted")) == 5
    first.abort_transaction(WAIT_S)
    eventually(lambda: ends(admin, topic), (7, 7))
    assert read_all(bootstrap, topic, 0, "read_committed") == [b"0/0", b"0/1", b"second", b"0/2"]


def test_an_empty_transaction_leaves_no_trace(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    sender = transactional(bootstrap, topic)
    for end in (sender.commit_transaction, sender.abort_transaction):
        sender.begin_transaction()
        end(WAIT_S)
    assert ends(admin, topic) == (0, 0)


def test_offsets_are_committed_with_the_records_or_not_at_all(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    sender = transactional(bootstrap, topic)
    with leaving([ConfluentMember(bootstrap, topic, [topic])]) as members:
        receive(members, produce(bootstrap, topic, partitions=1, per_partition=3))
        metadata = members[0].ask(lambda client: client.consumer_group_metadata())
        unset = offset_of(admin, topic, topic)
        assert unset < 0
        for end, offset, expected in (
            (sender.abort_transaction, 2, unset),
            (sender.commit_transaction, 1, 1),
            (sender.abort_transaction, 3, 1),
        ):
            sender.begin_transaction()
            sender.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, WAIT_S)
            assert offset_of(admin, topic, topic) == (unset if offset == 1 else expected)
            end(WAIT_S)
            eventually(lambda: offset_of(admin, topic, topic), expected)


def test_who_asks_for_stable_offsets_hears_that_they_are_not(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    sender = transactional(bootstrap, topic)
    with leaving([ConfluentMember(bootstrap, topic, [topic])]) as members:
        receive(members, produce(bootstrap, topic, partitions=1, per_partition=3))
        metadata = members[0].ask(lambda client: client.consumer_group_metadata())
        sender.begin_transaction()
        sender.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], metadata, WAIT_S)
        wanted = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])]
        answer = admin.list_consumer_group_offsets(wanted, require_stable=True)[topic].result(WAIT_S)
        assert [found.error.code() for found in answer.topic_partitions] == [
            KafkaError.UNSTABLE_OFFSET_COMMIT
        ]
        sender.commit_transaction(WAIT_S)
        eventually(lambda: offset_of(admin, topic, topic, require_stable=True), 2)


def failure(work: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as failed:
        work()
    error = failed.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_a_zombie_is_fenced_and_its_transaction_aborted(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    zombie = transactional(bootstrap, topic)
    zombie.begin_transaction()
    send(zombie, topic, b"of the zombie")
    heir = transactional(bootstrap, topic)
    assert ends(admin, topic) == (2, 2)  # the record and the marker that aborts it
    heir.begin_transaction()
    send(heir, topic, b"of the heir")
    error = failure(lambda: zombie.commit_transaction(WAIT_S))
    assert error.fatal()
    assert error.code() == KafkaError._FENCED
    heir.commit_transaction(WAIT_S)
    assert read_all(bootstrap, topic, 0, "read_committed") == [b"of the heir"]


def test_a_transaction_that_takes_too_long_is_aborted(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    slow = transactional(bootstrap, topic, transaction_timeout_ms=1000)
    slow.begin_transaction()
    send(slow, topic, b"too slow")
    assert ends(admin, topic) == (0, 1)
    eventually(lambda: ends(admin, topic), (2, 2))
    error = failure(lambda: slow.commit_transaction(WAIT_S))
    assert error.fatal() or error.txn_requires_abort()
    assert read_all(bootstrap, topic, 0, "read_committed") == []
    assert failure(lambda: transactional(bootstrap, topic, transaction_timeout_ms=2_000_000_000)).code() == (
        KafkaError.INVALID_TRANSACTION_TIMEOUT
    )


def test_a_member_of_the_past_commits_no_offsets(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    """A consumer that lost its partitions must not move the offsets of those who own them now."""
    topic = new_topic()
    sender = transactional(bootstrap, topic)
    with leaving([ConfluentMember(bootstrap, topic, [topic])]) as members:
        receive(members, produce(bootstrap, topic, partitions=1, per_partition=3))
        of_the_past = members[0].ask(lambda client: client.consumer_group_metadata())
        members.append(ConfluentMember(bootstrap, topic, [topic]))
        members.pop(0).close()
        eventually(lambda: members[0].owned, frozenset({Place(topic, 0)}))
        sender.begin_transaction()
        send(sender, topic, b"written by a zombie")
        error = failure(
            lambda: sender.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], of_the_past, WAIT_S)
        )
        assert error.txn_requires_abort()
        sender.abort_transaction(WAIT_S)
        assert offset_of(admin, topic, topic) < 0
        assert read_all(bootstrap, topic, 0, "read_committed") == [b"0/0", b"0/1", b"0/2"]


def test_transactions_are_described_and_listed(
    bootstrap: str, kafka_python: KafkaAdminClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    sender = transactional(bootstrap, topic, transaction_timeout_ms=50_000)

    def state() -> str:
        return str(kafka_python.describe_transactions([topic])[topic].state.name)

    assert state() == "EMPTY"
    sender.begin_transaction()
    send(sender, topic, b"x", partition=1)
    described = kafka_python.describe_transactions([topic])[topic]
    assert described.state.name == "ONGOING"
    assert described.transaction_timeout_ms == 50_000
    place = KafkaPythonPartition(topic, 1)
    assert set(described.topic_partitions) == {place}
    (writing,) = kafka_python.describe_producers([place])[place].active_producers
    assert writing.producer_id == described.producer_id
    assert writing.current_transaction_start_offset == 0
    told = kafka_python.list_transactions().values()  # of each broker
    listed = {one.transactional_id: one for one in chain.from_iterable(told)}
    assert listed[topic].producer_id == described.producer_id
    sender.commit_transaction(WAIT_S)
    eventually(state, "COMPLETE_COMMIT")
    (written,) = kafka_python.describe_producers([place])[place].active_producers
    assert written.current_transaction_start_offset == -1
