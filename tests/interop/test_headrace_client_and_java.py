"""Our Python client and Java's, through one topic: what one writes the other reads, to the last header."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.broker import Broker
from harness.topic_creation import create_topic
from harness.wait import WAIT_S
from headrace import Consumer, Producer
from interop.java_tools import Run

Brokers = tuple[Broker, Broker]
PARTITIONS = 5
SHOW = [
    f"--formatter-property={option}"
    for option in (
        "print.key=true",
        "print.headers=true",
        "print.partition=true",
        "print.offset=true",
        "print.timestamp=true",
        "null.literal=NOTHING",
    )
]


@pytest.fixture(params=[0, 1], ids=["kafka", "headrace"])
def broker(request: pytest.FixtureRequest, brokers: Brokers, topic: str) -> Broker:
    chosen = brokers[request.param]
    create_topic(AdminClient({"bootstrap.servers": chosen.bootstrap}), NewTopic(topic, PARTITIONS))
    return chosen


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_java_reads_what_we_write(broker: Broker, run: Run, topic: str, codec: str) -> None:
    expected = []
    with Producer(broker.bootstrap, compression_type=codec) as producer:
        for number in range(50):
            value = None if number % 10 == 0 else f"value {number}"
            headers = {"number": str(number).encode(), "empty": b""} if number % 3 else None
            delivery = producer.send(
                topic, value, f"key-{number}", timestamp_ms=1_700_000_000_000 + number, headers=headers
            )
            expected.append((delivery, number, value, headers))
    lines = []
    for delivery, number, value, headers in expected:
        place = delivery.get(WAIT_S)
        told = ",".join(f"{name}:{data.decode()}" for name, data in (headers or {}).items())
        lines.append(
            f"CreateTime:{1_700_000_000_000 + number}\tPartition:{place.partition}\tOffset:{place.offset}\t"
            f"{told or 'NO_HEADERS'}\tkey-{number}\t{value or 'NOTHING'}"
        )
    where = ["--topic", topic, "--from-beginning", "--max-messages", "50", "--timeout-ms", "60000"]
    got = run(broker, "kafka-console-consumer", *where, *SHOW)
    assert got.code == 0, got
    assert sorted(got.lines) == sorted(lines)


def test_we_read_what_java_writes_from_the_partitions_where_we_would_have_put_it(
    broker: Broker, run: Run, topic: str
) -> None:
    keys = [f"schlüssel-{number}" for number in range(200)]
    reader = [f"--reader-property={option}" for option in ("parse.key=true", "parse.headers=true")]
    sent = run(
        broker,
        "kafka-console-producer",
        *("--topic", topic, *reader),
        stdin="".join(f"from:java,at:{key}\t{key}\tvalue of {key}\n" for key in keys),
    )
    assert sent.code == 0, sent
    with Producer(broker.bootstrap) as producer:
        ours = {key: producer.send(topic, b"ours", key) for key in keys}
    with Consumer(broker.bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        theirs: dict[str, Any] = {}
        while len(theirs) < len(keys):
            messages = consumer.poll(WAIT_S)
            assert messages, "not all came"
            for message in messages:
                if message.value != b"ours":
                    theirs[message.key.decode()] = message
    for key, message in theirs.items():
        assert message.value == f"value of {key}".encode()
        assert message.headers == (("from", b"java"), ("at", key.encode()))
        assert message.partition == ours[key].get(WAIT_S).partition


def test_java_goes_on_where_our_group_has_stopped(broker: Broker, run: Run, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(20):
            producer.send(topic, f"{number}", partition=0)
    with Consumer(broker.bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        read: list[bytes] = []
        while len(read) < 12:
            read += [message.value for message in consumer.poll(WAIT_S, max_records=12 - len(read))]
        consumer.commit()
    where = ["--topic", topic, "--group", topic, "--max-messages", "8", "--timeout-ms", "60000"]
    got = run(broker, "kafka-console-consumer", *where)
    assert [*(value.decode() for value in read), *got.lines] == [str(number) for number in range(20)]
