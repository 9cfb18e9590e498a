"""headrace.Consumer and headrace.aio.Consumer by assignment: what others wrote, read from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from clients.both_shells import SHELLS, end, read, values
from clients.compacted import EAGER, KEYS, write
from clients.samples import BASE_MS, CODECS, NOTHING, SAMPLES, Row
from clients.transactions import send as send_in_transaction
from clients.transactions import transactional
from harness.wait import WAIT_S, eventually
from headrace import JSON, TEXT, Consumer, KafkaError, Message, TopicPartition, UndecodableRecord

MIB = 1 << 20
# a position that moves is read as soon as the fetch before has come back
QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
NewConsumer = Callable[..., Any]
NewTopic = Callable[..., str]


@pytest.fixture(params=SHELLS)
def new_consumer(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[NewConsumer]:
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        made.append(SHELLS[request.param](bootstrap, **QUICK | settings))
        return made[-1]

    yield make
    for consumer in made:
        end(consumer)


@pytest.fixture(scope="module")
def sender(bootstrap: str) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "message.max.bytes": 11 * MIB, "enable.idempotence": True}
    )


def send(sender: Producer, topic: str, *rows: Row, partition: int = 0) -> None:
    for row in rows:
        sender.produce(
            topic, row.value, row.key, partition, timestamp=row.timestamp_ms, headers=list(row.headers)
        )
    assert sender.flush(WAIT_S) == 0


def row_of(message: Message) -> Row:
    return Row(message.offset, message.timestamp_ms, message.key, message.value, message.headers)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_carries_every_kind_of_record(
    bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer, codec: str
) -> None:
    topic = new_topic()
    everything = [*SAMPLES, NOTHING]
    compressing = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    send(compressing, topic, *everything)
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    found = read(consumer, len(everything))
    assert [row_of(message) for message in found] == everything
    assert {(message.topic, message.partition, message.timestamp_type) for message in found} == {
        (topic, 0, 0)
    }
    consumer.seek((topic, 0), 0)
    assert [row_of_arrow(each) for each in read_rows(consumer, len(everything))] == everything


def read_rows(consumer: Any, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while len(rows) < count and len(table := consumer.poll_arrow(WAIT_S)):
        rows += table.to_pylist()
    return rows


def row_of_arrow(each: dict[str, Any]) -> Row:
    headers = tuple((header["key"], header["value"]) for header in each["headers"])
    timestamp_ms = round(each["timestamp"].timestamp() * 1000)
    return Row(each["offset"], timestamp_ms, each["key"], each["value"], headers)


@pytest.mark.parametrize("size", [1, 100_000, 10 * MIB])
def test_messages_of_every_size(
    sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer, size: int
) -> None:
    """Also those that are larger than any limit of a fetch."""
    topic = new_topic(max_message_bytes=str(12 * MIB))
    sent = [Row(number, BASE_MS, None, bytes([65 + number]) * size, ()) for number in range(3)]
    send(sender, topic, *sent)
    consumer = new_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=1000)
    consumer.assign([(topic, 0)])
    assert [row_of(message) for message in read(consumer, 3)] == sent


@pytest.mark.parametrize(
    ("reset", "expected"), [("earliest", 0), ("latest", len(SAMPLES)), ("by_duration:PT1H", len(SAMPLES) - 1)]
)
def test_where_to_begin(
    sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer, reset: str, expected: int
) -> None:
    topic = new_topic()
    send(sender, topic, *SAMPLES[:-1])
    sender.produce(topic, b"of today")
    assert sender.flush(WAIT_S) == 0
    consumer = new_consumer(auto_offset_reset=reset)
    at = TopicPartition(topic, 0)
    consumer.assign([at])
    assert consumer.position(at) == expected
    consumer.assign({at: 1_000_000})  # nothing is there, and the same rule says where to go on
    found: list[Message] = []
    while consumer.position(at) == 1_000_000:
        found += consumer.poll(0.05)
    sender.produce(topic, b"the newest")
    assert sender.flush(WAIT_S) == 0
    assert (found or read(consumer, 1))[0].offset == expected


def test_without_a_rule_the_application_is_asked(
    sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    send(sender, topic, *SAMPLES)
    consumer = new_consumer(auto_offset_reset="none")
    consumer.assign({(topic, 0): 1_000_000})
    with pytest.raises(KafkaError) as raised:
        consumer.poll(WAIT_S)
    assert raised.value.name == "OFFSET_OUT_OF_RANGE"
    assert topic in str(raised.value)
    consumer.seek((topic, 0), 2)
    assert row_of(read(consumer, 1)[0]) == SAMPLES[2]


def test_positions(sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    topic = new_topic(partitions=2)
    send(sender, topic, *SAMPLES)
    send(sender, topic, *SAMPLES[:4], partition=1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = new_consumer(max_poll_records=3)
    consumer.assign([first])
    assert [message.offset for message in consumer.poll(WAIT_S)] == [0, 1, 2]
    assert consumer.position(first) == 3
    consumer.seek(first, 7)
    assert consumer.position(first) == 7
    assert row_of(consumer.poll(WAIT_S)[0]) == SAMPLES[7]
    consumer.seek_to_beginning()
    assert row_of(consumer.poll(WAIT_S, max_records=1)[0]) == SAMPLES[0]
    assert consumer.position(first) == 1
    assert consumer.lag(first) == len(SAMPLES) - 1
    consumer.seek_to_end([first])
    assert consumer.position(first) == len(SAMPLES)
    consumer.assign([first, second])
    assert consumer.assignment == {first, second}
    assert consumer.position(first) == len(SAMPLES)  # what stays is not begun again
    assert {message.partition for message in read(consumer, 4)} == {1}


def test_paused_partitions_keep_their_place(
    sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        send(sender, topic, *SAMPLES, partition=partition)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = new_consumer(max_poll_records=2)
    consumer.assign([first, second])
    begun = next(consumer)  # another message was taken with it and is not handed out
    moving, resting = (second, first) if begun.partition == 0 else (first, second)
    consumer.pause([resting])
    assert consumer.paused == {resting}
    assert {message.partition for message in read(consumer, len(SAMPLES))} == {moving.partition}
    assert consumer.poll(0.1) == []
    consumer.resume([resting])
    assert [row_of(message) for message in read(consumer, len(SAMPLES) - 1)] == list(SAMPLES[1:])


def test_offsets_by_time_and_ends(
    sender: Producer, admin: AdminClient, new_topic: NewTopic, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)
    send(sender, topic, *SAMPLES)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = new_consumer()
    found = consumer.offsets_for_times({first: BASE_MS + 1500, second: 0})
    assert found[first][:2] == (2, BASE_MS + 2000)
    assert found[second] is None
    assert consumer.offsets_for_times({first: BASE_MS + 10**9}) == {first: None}
    admin.delete_records([ConfluentPartition(topic, 0, 3)])
    eventually(lambda: consumer.beginning_offsets([first, second]), {first: 3, second: 0})
    assert consumer.end_offsets([first, second]) == {first: len(SAMPLES), second: 0}
    assert [partition.index for partition in consumer.partitions_for(topic)] == [0, 1]
    consumer.assign({first: 1})  # which is gone
    assert read(consumer, 1)[0].offset == 3


def test_whose_clock_it_was(sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    send(sender, topic, SAMPLES[0])
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    (message,) = read(consumer, 1)
    assert message.timestamp_type.name == "LOG_APPEND_TIME"
    assert message.timestamp_ms > SAMPLES[0].timestamp_ms


def test_only_what_is_committed(bootstrap: str, new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    topic = new_topic()
    at = TopicPartition(topic, 0)
    writer = transactional(bootstrap, topic)
    for number in range(6):
        writer.begin_transaction()
        send_in_transaction(writer, topic, b"%d" % number, b"%d again" % number)
        writer.abort_transaction(WAIT_S) if number % 3 == 1 else writer.commit_transaction(WAIT_S)
    writer.begin_transaction()
    send_in_transaction(writer, topic, b"open")
    seen = [b"%d%s" % (number, again) for number in (0, 2, 3, 5) for again in (b"", b" again")]
    careful, careless = new_consumer(isolation_level="read_committed"), new_consumer()
    for consumer, expected in ((careful, seen), (careless, None)):
        consumer.assign([at])
        found = values(read(consumer, 8 if expected else 13))
        assert found == expected or len(found) == 13
        assert consumer.poll(0.05) == []
        assert consumer.position(at) == consumer.end_offsets([at])[at]
        assert consumer.lag(at) == 0
    assert careful.position(at) == careless.position(at) - 1
    writer.commit_transaction(WAIT_S)
    assert values(read(careful, 1)) == [b"open"]
    careful.seek(at, 0)
    assert [row["value"] for row in read_rows(careful, 9)] == [*seen, b"open"]


def test_gaps_of_a_compacted_topic(bootstrap: str, sender: Producer, new_topic: NewTopic) -> None:
    topic = new_topic(**EAGER)
    at = TopicPartition(topic, 0)
    for version in range(1, 6):
        write(sender, topic, version, range(KEYS))

    def remaining(consumer: Consumer) -> list[tuple[bytes, bytes]]:
        sender.produce(topic, b"the newest segment is never cleaned", b"other")
        assert sender.flush(WAIT_S) == 0
        consumer.assign({at: 0})
        end = consumer.end_offsets([at])[at]
        found: list[Message] = []
        while consumer.position(at) < end:
            found += consumer.poll(0.1)
        assert [message.offset for message in found] == sorted({message.offset for message in found})
        return [(message.key, message.value) for message in found if message.key != b"other"]

    with Consumer(bootstrap, **QUICK) as consumer:
        eventually(lambda: remaining(consumer), [(b"k%d" % number, b"v5") for number in range(KEYS)])


def test_values_of_other_types(sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    topic = new_topic()
    for value in (b'{"a": 1}', b"{broken", None, b"[2]"):
        sender.produce(topic, value, "schlüssel".encode())
    assert sender.flush(WAIT_S) == 0
    consumer = new_consumer(key_deserializer=TEXT, value_deserializer=JSON)
    consumer.assign({(topic, 0): 0})
    assert [(message.key, message.value) for message in consumer.poll(WAIT_S)] == [("schlüssel", {"a": 1})]
    for _ in range(2):  # until the application has decided
        with pytest.raises(UndecodableRecord) as raised:
            consumer.poll(WAIT_S)
        error = raised.value
        assert (error.at, error.offset, error.part) == (TopicPartition(topic, 0), 1, "value")
        assert (error.message.key, error.message.value) == ("schlüssel".encode(), b"{broken")
        assert f"offset 1 of partition {topic}-0" in str(error)
        assert consumer.position(error.at) == 1
    consumer.seek(error.at, error.offset + 1)
    assert values(read(consumer, 2)) == [None, [2]]


def test_messages_one_by_one(sender: Producer, new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    """What iteration has not handed out does not count as read, whoever asks."""
    topic = new_topic()
    at = TopicPartition(topic, 0)
    send(sender, topic, *SAMPLES)
    consumer = new_consumer(group_id=topic)
    consumer.assign([at])
    for number, message in enumerate(consumer):
        assert row_of(message) == SAMPLES[number]
        assert consumer.position(at) == number + 1
        assert consumer.lag(at) == len(SAMPLES) - number - 1
        assert {at: offset.offset for at, offset in consumer.commit().items()} == {at: number + 1}
        if number == 3:
            break
    assert row_of(consumer.poll(WAIT_S, max_records=1)[0]) == SAMPLES[4]
    consumer.seek(at, 6)
    assert row_of(next(consumer)) == SAMPLES[6]
    consumer.close()
    assert list(consumer) == []
    again = new_consumer(group_id=topic)
    again.assign([at])
    assert again.position(at) == 7, "automatic commits are made on closing, of what was handed out"
