"""The few Kafka frames that the harness sends itself, so that starting a broker depends on no client.

Metadata v4 tells whether a broker serves; a one-record Produce v7 is the first acknowledged write that
the start-up benchmark waits for.
"""

from __future__ import annotations

import socket
import struct

import crc32c

METADATA, PRODUCE = 3, 0
TIMEOUT_S = 30.0


class Reader:
    """Walks over a response's fixed-width fields and strings."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def string(self) -> str | None:
        length = self.take(">h")
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position].decode()


class Connection:
    """One blocking connection; requests and answers take turns."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def request(self, api_key: int, version: int, body: bytes) -> Reader:
        frame = struct.pack(">hhih", api_key, version, 1, -1) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._exactly(4))
        reader = Reader(self._exactly(length))
        reader.take(">i")  # correlation id
        return reader

    def _exactly(self, count: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            chunk = self.socket.recv(count - len(chunks))
            if not chunk:
                raise ConnectionError("closed by the broker")
            chunks += chunk
        return bytes(chunks)

    def live_brokers(self, auto_create: str | None = None) -> tuple[int, int]:
        """How many brokers Metadata lists, and the error code of the one topic asked for (0: none asked)."""
        topics = struct.pack(">i", 0)
        if auto_create is not None:
            topics = struct.pack(">i", 1) + _string(auto_create)
        reader = self.request(METADATA, 4, topics + b"\x01")
        reader.take(">i")  # throttle time
        brokers = reader.take(">i")
        for _ in range(brokers):
            reader.take(">i")
            reader.string()
            reader.take(">i")
            reader.string()
        reader.string()  # cluster id
        controller = reader.take(">i")
        error = reader.take(">h") if reader.take(">i") else 0
        return (brokers if controller >= 0 else 0), error

    def leaders(self, topic: str) -> list[int]:
        """Of each partition, in no order; [] while the topic is unknown."""
        reader = self.request(METADATA, 4, struct.pack(">i", 1) + _string(topic) + b"\0")
        reader.take(">i")  # throttle time
        for _ in range(reader.take(">i")):
            reader.take(">i")
            reader.string()
            reader.take(">i")
            reader.string()
        reader.string()  # cluster id
        reader.take(">i")  # controller
        reader.take(">i")  # the one topic
        reader.take(">h")
        reader.string()
        reader.take(">b")
        found = []
        for _ in range(reader.take(">i")):
            reader.take(">h")
            reader.take(">i")
            found.append(reader.take(">i"))
            for _ in range(2):  # replicas, in-sync ones
                count = reader.take(">i")
                reader.position += 4 * count
        return found

    def produce_one(self, topic: str, value: bytes, partition: int = 0) -> int:
        """Appends one record with acks=1; the partition's error code."""
        records = one_record_batch(value)
        body = struct.pack(">hhii", -1, 1, 5000, 1) + _string(topic)
        body += struct.pack(">iii", 1, partition, len(records)) + records
        reader = self.request(PRODUCE, 7, body)
        reader.take(">i")
        reader.string()
        reader.take(">i")
        reader.take(">i")
        return reader.take(">h")


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def one_record_batch(value: bytes, timestamp_ms: int = 0) -> bytes:
    record = b"\0\0\0" + _varint(-1) + _varint(len(value)) + value + _varint(0)
    records = _varint(len(record)) + record
    tail = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c.crc32c(tail)) + tail


def has_live_broker(host: str, port: int) -> bool:
    """Whether a broker serves there; refused, reset and half-open connections all mean not yet."""
    try:
        with Connection(host, port) as connection:
            return connection.live_brokers()[0] > 0
    except OSError:
        return False


def leaders(port: int, topic: str) -> list[int]:
    """[] also where nobody serves at the moment."""
    try:
        with Connection("127.0.0.1", port) as connection:
            return connection.leaders(topic)
    except OSError:
        return []


def first_acknowledged_write(host: str, port: int, topic: str) -> bool:
    """Tries once to create `topic` by asking for it and to write one record to it."""
    try:
        with Connection(host, port) as connection:
            brokers, error = connection.live_brokers(auto_create=topic)
            return brokers > 0 and error == 0 and connection.produce_one(topic, b"first") == 0
    except OSError:
        return False
