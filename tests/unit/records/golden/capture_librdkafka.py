"""Writes librdkafka-<codec>.bin: what confluent-kafka's producer sends, taken from its own mock cluster.

    python capture_librdkafka.py DIRECTORY

The records are those of Golden.java.
"""

import socket
import sys
from pathlib import Path
from struct import pack, unpack_from

from confluent_kafka import Producer

TOPIC = b"golden"


def produce(producer: Producer) -> None:
    for i in range(40):
        producer.produce(
            TOPIC.decode(),
            key=None if i % 3 == 0 else b"key-%d" % i,
            value=None if i % 5 == 4 else b"value-%d " % i * i,
            headers=[("größe", b"%d" % i), ("none", None)] if i % 7 == 0 else None,
            timestamp=1_700_000_000_000 + i * i,
            partition=0,
        )
    assert producer.flush(10) == 0


def fetch(port: int) -> bytes:
    """The records field of a Fetch (version 4) of partition 0."""
    request = pack(">hhih", 1, 4, 7, -1) + pack(">iiiib", -1, 1000, 1, 1 << 24, 0)
    request += pack(">ih", 1, len(TOPIC)) + TOPIC + pack(">iiqi", 1, 0, 0, 1 << 24)
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        connection.sendall(pack(">i", len(request)) + request)
        answer = answers.read(unpack_from(">i", answers.read(4))[0])
    position = 4 + 4 + 4 + 2 + len(TOPIC) + 4  # correlation id, throttle, topics, name, partitions
    aborted = unpack_from(">i", answer, position + 22)[0]
    position += 26 + 16 * max(aborted, 0)
    return answer[position + 4 : position + 4 + unpack_from(">i", answer, position)[0]]


def main() -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": "mock",
                "test.mock.num.brokers": 1,
                "compression.type": codec,
                "linger.ms": 200,
                "enable.idempotence": True,
            }
        )
        (broker,) = producer.list_topics(TOPIC.decode(), timeout=10).brokers.values()
        produce(producer)
        Path(sys.argv[1], f"librdkafka-{codec}.bin").write_bytes(fetch(broker.port))


if __name__ == "__main__":
    main()
