"""confluent-kafka (librdkafka): records and offsets, consumed by assignment."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    TopicPartition,
)

from clients.samples import BASE_MS, CODECS, NOTHING, SAMPLES, Row
from clients.with_confluent import consumer, delivered, plain, producer, read, row
from harness.broker import Broker
from harness.wait import WAIT_S

MIB = 1 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_carries_every_kind_of_record(
    bootstrap: str, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic()
    sent = [*SAMPLES, NOTHING]
    reports = delivered(producer(bootstrap, compression_type=codec, linger_ms=50), topic, sent)
    assert [report.offset() for report in reports] == [sample.offset for sample in sent]
    with consumer(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        assert [row(message) for message in read(reader, len(sent))] == sent


@pytest.mark.parametrize("size", [1, 100, 10_000, MIB, 10 * MIB])
def test_messages_of_every_size(bootstrap: str, new_topic: Callable[..., str], size: int) -> None:
    topic = new_topic(max_message_bytes=str(12 * MIB))
    sent = [Row(i, BASE_MS, None, bytes([65 + i]) * size, ()) for i in range(3)]
    delivered(producer(bootstrap, message_max_bytes=11 * MIB), topic, sent)
    limits = {
        "fetch.message.max.bytes": MIB,
        "fetch.max.bytes": 64 * MIB,
        "receive.message.max.bytes": 65 * MIB,
    }
    with consumer(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING), **limits) as reader:
        assert [row(message) for message in read(reader, 3)] == sent


def test_a_message_above_the_topics_limit_is_refused(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="1000")
    errors: list[KafkaError | None] = []
    sender = producer(bootstrap)
    sender.produce(topic, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    sender.produce(topic, b"x" * 200, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(WAIT_S) == 0
    assert {error.code() for error in errors if error is not None} == {KafkaError.MSG_SIZE_TOO_LARGE}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, new_topic: Callable[..., str], acks: str) -> None:
    topic = new_topic()
    delivered(producer(bootstrap, acks=acks), topic, plain(500))
    with consumer(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        assert [row(message) for message in read(reader, 500)] == plain(500)


def test_an_idempotent_producer_keeps_order_over_partitions(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    sender = producer(bootstrap, enable_idempotence=True, linger_ms=0)
    for partition in range(3):
        reports = delivered(sender, topic, plain(1000), partition)
        assert [report.offset() for report in reports] == list(range(1000))
    assigned = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)]
    with consumer(bootstrap, *assigned) as reader:
        messages = read(reader, 3000)
    for partition in range(3):
        assert [row(m) for m in messages if m.partition() == partition] == plain(1000)


def test_offsets_by_timestamp_and_watermarks(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    delivered(producer(bootstrap), topic, list(SAMPLES))
    with consumer(bootstrap) as reader:

        def first_at(timestamp_ms: int) -> int:
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=WAIT_S)
            return int(found.offset)

        assert [first_at(sample.timestamp_ms) for sample in SAMPLES] == [s.offset for s in SAMPLES]
        assert first_at(BASE_MS + 1500) == 2
        assert first_at(0) == 0
        assert first_at(SAMPLES[-1].timestamp_ms + 1) == OFFSET_END
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, len(SAMPLES))


def test_earliest_and_latest_when_the_offset_is_out_of_range(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    sender = producer(bootstrap)
    delivered(sender, topic, plain(10))
    with consumer(bootstrap, TopicPartition(topic, 0, 500), auto_offset_reset="earliest") as reader:
        assert read(reader, 1)[0].offset() == 0
    with consumer(bootstrap, TopicPartition(topic, 0, 500), auto_offset_reset="latest") as reader:
        while (position := reader.position([TopicPartition(topic, 0)])[0].offset) == OFFSET_INVALID:
            delivered(sender, topic, plain(1))
            for message in reader.consume(10, timeout=0.1):
                assert (message.offset() or 0) >= 10
        assert position > 10
    with consumer(bootstrap, TopicPartition(topic, 0, 500), auto_offset_reset="error") as reader:
        found = reader.poll(WAIT_S)
        assert found is not None
        error = found.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_a_waiting_consumer_gets_the_record_at_once(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """A fetch that waits a minute must end with the append: the reader polls for less than that."""
    topic = new_topic()
    settings = {"fetch.wait.max.ms": 60_000, "socket.timeout.ms": 61_000}
    with consumer(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING), **settings) as reader:
        assert reader.consume(1, timeout=0.5) == []
        sender = producer(bootstrap)
        for number in range(5):
            delivered(sender, topic, plain(1))
            assert read(reader, 1)[0].offset() == number


def test_a_topic_is_made_by_producing_to_it(bootstrap: str, name: str) -> None:
    reports = delivered(producer(bootstrap), name, plain(3))
    assert [report.offset() for report in reports] == [0, 1, 2]


def test_a_consumer_does_not_make_a_topic(bootstrap: str, name: str) -> None:
    with consumer(bootstrap) as reader:
        assert reader.list_topics(name, timeout=WAIT_S).topics[name].error == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert name not in reader.list_topics(timeout=WAIT_S).topics


def test_seek_back_and_forth(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    delivered(producer(bootstrap), topic, plain(1000))
    with consumer(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        read(reader, 1)
        for offset in (999, 0, 500, 17):
            reader.seek(TopicPartition(topic, 0, offset))
            assert read(reader, 1)[0].offset() == offset


def test_log_append_time_stamps_the_brokers_clock(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    delivered(producer(bootstrap, compression_type="zstd"), topic, plain(10))
    with consumer(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as reader:
        for message in read(reader, 10):
            kind, timestamp = message.timestamp()
            assert kind != TIMESTAMP_CREATE_TIME
            assert before_ms <= timestamp <= int(time.time() * 1000)


def test_a_timestamp_too_far_ahead_is_refused(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_after_max_ms="1000")
    errors: list[KafkaError | None] = []
    sender = producer(bootstrap)
    tomorrow_ms = int(time.time() * 1000) + 86_400_000
    sender.produce(topic, b"x", timestamp=tomorrow_ms, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(WAIT_S) == 0
    assert [error.code() for error in errors if error] == [KafkaError.INVALID_TIMESTAMP]


def test_records_survive_a_clean_restart(new_broker: Callable[..., Broker], name: str) -> None:
    restarted = new_broker().start()
    delivered(producer(restarted.bootstrap), name, list(SAMPLES))
    restarted.stop()
    restarted.start()
    with consumer(restarted.bootstrap, TopicPartition(name, 0, OFFSET_BEGINNING)) as reader:
        assert [row(message) for message in read(reader, len(SAMPLES))] == list(SAMPLES)
    restarted.stop()
