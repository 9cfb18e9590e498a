"""headrace.Producer: what it writes, every client reads; what brokers refuse, it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from clients import with_confluent
from clients.every_client import READERS
from clients.reading import read_all, read_pairs
from clients.samples import BASE_MS, CODECS, NOTHING, SAMPLES
from clients.transactions import offset_of
from harness.broker import Broker
from harness.wait import WAIT_S

MIB = 1 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_all_clients_read_what_it_writes(bootstrap: str, new_topic: Callable[..., str], codec: str) -> None:
    topic = new_topic()
    with headrace.Producer(bootstrap, compression_type=codec, linger_ms=20) as producer:
        deliveries = [
            producer.send(
                topic, row.value, row.key, timestamp_ms=row.timestamp_ms, headers=row.headers, partition=0
            )
            for row in SAMPLES
        ]
        found = [delivery.get(WAIT_S) for delivery in deliveries]
    assert [(each.topic, each.partition, each.offset, each.timestamp_ms) for each in found] == [
        (topic, 0, row.offset, row.timestamp_ms) for row in SAMPLES
    ]
    for reader, read in READERS.items():
        assert read(bootstrap, topic, len(SAMPLES)) == list(SAMPLES), reader


def test_a_record_may_have_nothing_but_a_header(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with headrace.Producer(bootstrap) as producer:
        producer.send(topic, timestamp_ms=NOTHING.timestamp_ms, headers=NOTHING.headers)
    with with_confluent.consumer(bootstrap, ConfluentPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        (found,) = [with_confluent.row(message) for message in with_confluent.read(reader, 1)]
    assert found == NOTHING._replace(offset=0)


def test_a_key_goes_where_every_other_client_puts_it(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """librdkafka with murmur2_random, and the Python clients, which follow Java by themselves."""
    topic = new_topic(partitions=7)
    keys = [b"", b"k", *(f"customer-{number}".encode() for number in range(200)), bytes(range(256))]
    with headrace.Producer(bootstrap, linger_ms=20) as producer:
        ours = [producer.send(topic, b"ours", key) for key in keys]
        places = {key: delivery.get(WAIT_S).partition for key, delivery in zip(keys, ours, strict=True)}
    assert set(places.values()) == set(range(7))
    theirs: dict[bytes, int] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        theirs[message.key()] = message.partition()

    sender = with_confluent.producer(bootstrap, partitioner="murmur2_random")
    for key in keys[1:]:  # librdkafka takes an empty key for none
        sender.produce(topic, b"theirs", key, on_delivery=delivered)
    assert sender.flush(WAIT_S) == 0
    assert theirs == {key: places[key] for key in keys[1:]}


@pytest.mark.parametrize("partitioner", ["sticky", "round_robin", lambda topic, key, value, count: count - 1])
def test_partitioners(bootstrap: str, new_topic: Callable[..., str], partitioner: Any) -> None:
    topic = new_topic(partitions=3)
    with headrace.Producer(bootstrap, partitioner=partitioner, linger_ms=20) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(30)]
        places = [delivery.get(WAIT_S).partition for delivery in sent]
    if partitioner == "round_robin":
        assert sorted(places) == sorted([0, 1, 2] * 10)
    elif partitioner == "sticky":
        assert len(set(places)) == 1
    else:
        assert set(places) == {2}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, new_topic: Callable[..., str], acks: str) -> None:
    topic = new_topic()
    with headrace.Producer(bootstrap, acks=acks) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(500)]
        offsets = [delivery.get(WAIT_S).offset for delivery in sent]
    assert offsets == ([-1] * 500 if acks == "0" else list(range(500)))
    assert read_all(bootstrap, topic, 0, "read_uncommitted") == [b"%d" % number for number in range(500)]


def test_records_of_every_size(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes=str(12 * MIB))
    sizes = [1, 100, 10_000, MIB, 10 * MIB]
    with headrace.Producer(bootstrap, max_request_size=11 * MIB, buffer_memory=64 * MIB) as producer:
        for size in sizes:
            producer.send(topic, b"x" * size)
    with with_confluent.consumer(
        bootstrap, ConfluentPartition(topic, 0, OFFSET_BEGINNING), **{"receive.message.max.bytes": 100 * MIB}
    ) as reader:
        assert [len(message.value() or b"") for message in with_confluent.read(reader, len(sizes))] == sizes


def test_what_is_too_large_is_told(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="20000")
    with headrace.Producer(bootstrap) as producer:
        with pytest.raises(headrace.KafkaError, match="MESSAGE_TOO_LARGE") as ours:
            producer.send(topic, b"x" * 2 * MIB)
        assert "max.request.size" in ours.value.advice
        with pytest.raises(headrace.KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.send(topic, b"x" * 30_000).get(WAIT_S)
        # many small ones, of which a batch may hold too many: they go on in smaller ones
        sent = [producer.send(topic, b"x" * 1000) for _ in range(500)]
        assert [delivery.get(WAIT_S).offset for delivery in sent] == list(range(500))


def test_a_topic_is_made_by_sending_to_it(bootstrap: str, name: str) -> None:
    with headrace.Producer(bootstrap) as producer:
        assert producer.send(name, "text as it is").get(WAIT_S).offset == 0
        assert producer.partitions_for(name) == [0]
    assert read_all(bootstrap, name, 0, "read_uncommitted") == [b"text as it is"]


def test_a_name_that_cannot_be_a_topic_is_told_at_once(bootstrap: str) -> None:
    with headrace.Producer(bootstrap) as producer:
        with pytest.raises(headrace.KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            producer.send("no/slash", b"v")
        with pytest.raises(headrace.KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            producer.partitions_for("no/slash")


def test_a_partition_that_does_not_exist_is_told(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    with headrace.Producer(bootstrap) as producer:
        for partition in (2, -1):
            with pytest.raises(headrace.InvalidInput, match="partition"):
                producer.send(topic, b"v", partition=partition)


def test_threads_share_a_producer(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=4)
    with headrace.Producer(bootstrap, linger_ms=1) as producer:

        def work(thread: int) -> None:
            for number in range(2000):
                producer.send(topic, b"%d" % number, key=b"%d" % thread)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: dict[bytes | None, list[bytes | None]] = {}
    for partition in range(4):
        for key, value in read_pairs(bootstrap, topic, partition, "read_uncommitted"):
            found.setdefault(key, []).append(value)
    assert found == {b"%d" % thread: [b"%d" % number for number in range(2000)] for thread in range(4)}


def test_a_thousand_topics(bootstrap: str, admin: AdminClient, name: str) -> None:
    topics = [f"{name}-{number}" for number in range(1000)]
    made = admin.create_topics([NewTopic(topic, 1) for topic in topics], request_timeout=WAIT_S)
    for future in made.values():
        future.result(WAIT_S)
    with headrace.Producer(bootstrap, linger_ms=20) as producer, ThreadPoolExecutor(20) as threads:
        sent = list(threads.map(producer.send, topics * 2, topics * 2))
        assert sorted(delivery.get(WAIT_S).offset for delivery in sent) == [0] * 1000 + [1] * 1000
    assert read_all(bootstrap, topics[999], 0, "read_uncommitted") == [topics[999].encode()] * 2
    admin.delete_topics(topics, request_timeout=WAIT_S)


@pytest.mark.steady
def test_a_broker_that_stands_still_fills_the_buffer(
    broker: Broker, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with headrace.Producer(bootstrap, buffer_memory=100_000, max_block_ms=100, linger_ms=0) as producer:
        producer.send(topic, b"first").get(WAIT_S)
        broker.pause()
        try:
            sent: list[headrace.Delivery] = []

            def send_many() -> None:
                for _ in range(1000):
                    sent.append(producer.send(topic, b"x" * 1000))

            with pytest.raises(headrace.BufferExhausted, match=r"buffer\.memory is full") as full:
                send_many()
            with pytest.raises(headrace.TimedOut, match="records were not delivered"):
                producer.flush(timeout=0.01)
            with pytest.raises(headrace.TimedOut, match="no response"):
                sent[-1].get(timeout=0.01)
        finally:
            broker.go_on()
        assert full.value.is_retriable
        assert 50 < len(sent) < 100
        producer.flush(WAIT_S)
        assert [delivery.get().offset for delivery in sent] == list(range(1, len(sent) + 1))


class TestTables:
    def test_columns_become_records(self, bootstrap: str, new_topic: Callable[..., str]) -> None:
        topic = new_topic(partitions=2)
        rows = [row for row in SAMPLES if all(isinstance(value, bytes) for _, value in row.headers)]
        table = pyarrow.table(
            {
                "what": pyarrow.array([row.value for row in rows], pyarrow.binary()),
                "who": pyarrow.array([row.key for row in rows], pyarrow.binary()),
                "when": pyarrow.array([row.timestamp_ms for row in rows], pyarrow.timestamp("ms", "UTC")),
                "notes": pyarrow.array(
                    [list(row.headers) for row in rows], pyarrow.map_(pyarrow.string(), pyarrow.binary())
                ),
                "where": pyarrow.array([1] * len(rows), pyarrow.int32()),
            }
        )
        with headrace.Producer(bootstrap, compression_type="zstd") as producer:
            delivery = producer.send_arrow(
                topic, table, value="what", key="who", timestamp="when", headers="notes", partition="where"
            )
            found = delivery.get(WAIT_S)
        assert found == headrace.TableMetadata(
            topic, len(rows), {1: headrace.PartitionRows(len(rows), 0, len(rows) - 1)}
        )
        with with_confluent.consumer(bootstrap, ConfluentPartition(topic, 1, OFFSET_BEGINNING)) as reader:
            read = [with_confluent.row(message) for message in with_confluent.read(reader, len(rows))]
        assert read == [row._replace(offset=offset) for offset, row in enumerate(rows)]

    def test_a_table_may_be_larger_than_the_buffer(
        self, bootstrap: str, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic()
        values = [f"{number:08}" for number in range(100_000)]
        with headrace.Producer(bootstrap, buffer_memory=200_000) as producer:
            delivery = producer.send_arrow(topic, pyarrow.table({"value": values}))
            assert delivery.get(WAIT_S).partitions == {0: headrace.PartitionRows(100_000, 0, 99_999)}
        found = read_all(bootstrap, topic, 0, "read_uncommitted")
        assert found == [value.encode() for value in values]


class TestTransactions:
    def test_what_is_committed_counts_and_what_raised_does_not(
        self, bootstrap: str, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic(partitions=2)
        with headrace.Producer(bootstrap, transactional_id=topic) as producer:
            for number in range(6):
                try:
                    with producer.transaction():
                        for partition in range(2):
                            producer.send(topic, b"%d" % number, partition=partition)
                        if number % 3 == 1:
                            producer.flush()
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
        for partition in range(2):
            assert read_all(bootstrap, topic, partition, "read_committed") == [b"0", b"2", b"3", b"5"]
            assert len(read_all(bootstrap, topic, partition, "read_uncommitted")) == 6

    def test_offsets_are_committed_with_the_records_or_not_at_all(
        self, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic()
        with headrace.Producer(bootstrap, transactional_id=topic) as producer:
            with producer.transaction():
                producer.send(topic, b"kept")
                producer.send_offsets({(topic, 0): 7}, f"{topic}-group")
            producer.begin_transaction()
            producer.send_offsets(
                {headrace.TopicPartition(topic, 0): headrace.CommittedOffset(9)}, f"{topic}-group"
            )
            producer.abort_transaction()
        assert offset_of(admin, f"{topic}-group", topic) == 7

    def test_a_confluent_consumer_gives_its_offsets(
        self, bootstrap: str, new_topic: Callable[..., str]
    ) -> None:
        """Who has no consumer of ours says by itself who it is."""
        topic = new_topic()
        reader = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        reader.subscribe([topic])
        with headrace.Producer(bootstrap, transactional_id=topic) as producer:
            with producer.transaction():
                producer.send(topic, b"v")
            (message,) = reader.consume(1, WAIT_S)
            assert message.value() == b"v"
            stale = headrace.GroupMembership(topic, generation=99, member_id="nobody")
            with pytest.raises(headrace.TransactionMustAbort), producer.transaction():
                producer.send_offsets({(topic, 0): 1}, stale)
        reader.close()

    def test_the_later_producer_fences_the_earlier(
        self, bootstrap: str, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic()
        with headrace.Producer(bootstrap, transactional_id=topic) as earlier:
            earlier.begin_transaction()
            earlier.send(topic, b"zombie").get(WAIT_S)
            with headrace.Producer(bootstrap, transactional_id=topic) as later:
                with later.transaction():
                    later.send(topic, b"kept")
                with pytest.raises(headrace.ClientError):
                    earlier.send(topic, b"too late").get(WAIT_S)
                with pytest.raises(headrace.TransactionMustAbort):
                    earlier.commit_transaction()
                with pytest.raises(headrace.ProducerUnusable) as fenced:
                    earlier.abort_transaction()
                assert "Close it" in fenced.value.advice
                with pytest.raises(headrace.ProducerUnusable):
                    earlier.send(topic, b"never")
        assert read_all(bootstrap, topic, 0, "read_committed") == [b"kept"]

    def test_records_outside_a_transaction_are_refused(
        self, bootstrap: str, new_topic: Callable[..., str]
    ) -> None:
        topic = new_topic()
        with headrace.Producer(bootstrap, transactional_id=topic) as producer:
            with pytest.raises(headrace.OutsideTransaction) as refused:
                producer.send(topic, b"v")
            assert "with producer.transaction()" in refused.value.advice
            with producer.transaction():
                producer.send(topic, b"v")
            with pytest.raises(headrace.OutsideTransaction):
                producer.send(topic, b"v")

    def test_close_aborts_what_is_open(self, bootstrap: str, new_topic: Callable[..., str]) -> None:
        topic = new_topic()
        producer = headrace.Producer(bootstrap, transactional_id=topic)
        producer.begin_transaction()
        producer.send(topic, b"v").get(WAIT_S)
        producer.close()
        with headrace.Producer(bootstrap) as plain:
            plain.send(topic, b"after").get(WAIT_S)
        assert read_all(bootstrap, topic, 0, "read_committed") == [b"after"]


def test_timestamps_are_the_clocks(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    with headrace.Producer(bootstrap) as producer:
        found = producer.send(topic, b"v", timestamp_ms=BASE_MS).get(WAIT_S)
        assert found.timestamp_ms > BASE_MS + 3_600_000
        with pytest.raises(headrace.InvalidInput, match="timestamp"):
            producer.send(topic, b"v", timestamp_ms=-1)


@pytest.mark.parametrize("arrow", [False, True])
def test_a_partition_that_the_producer_has_not_heard_of(
    bootstrap: str, new_topic: Callable[..., str], arrow: bool
) -> None:
    topic = new_topic(1)
    with headrace.Producer(bootstrap) as producer, headrace.Admin(bootstrap) as admin:
        producer.send(topic, b"first").get(WAIT_S)
        admin.create_partitions({topic: 3})
        if arrow:
            table = pyarrow.table({"value": [b"grown"], "where": pyarrow.array([2], pyarrow.int32())})
            (place,) = producer.send_arrow(topic, table, partition="where").get(WAIT_S).partitions
            assert place == 2
        else:
            assert producer.send(topic, b"grown", partition=2).get(WAIT_S).partition == 2
