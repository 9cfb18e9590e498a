"""Compacted topics as a reader sees them: the newest value of each key, nothing aborted, tombstones gone."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from clients.grouping import WAIT_S
from clients.reading import read_pairs
from clients.test_transactions import transactional
from harness.wait import eventually

KEYS = 20
# every append after a moment begins a segment, and all but the last may be cleaned at once
EAGER = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.001",
    "delete_retention_ms": "100",
}


def write(sender: Producer, topic: str, version: int, keys: range) -> None:
    for number in keys:
        sender.produce(topic, b"v%d" % version if version else None, b"k%d" % number)
    assert sender.flush(WAIT_S) == 0


def test_only_the_newest_value_of_a_key_stays(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**EAGER)
    sender = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for version in range(1, 6):
        write(sender, topic, version, range(KEYS))
    write(sender, topic, 0, range(5))  # tombstones

    def remaining() -> list[tuple[bytes | None, bytes | None]]:
        sender.produce(topic, b"the newest segment is never cleaned", b"other")
        assert sender.flush(WAIT_S) == 0
        pairs = read_pairs(bootstrap, topic, 0, "read_uncommitted")
        return [pair for pair in pairs if pair[0] != b"other"]

    eventually(remaining, [(b"k%d" % number, b"v5") for number in range(5, KEYS)])


def test_an_aborted_value_does_not_replace_a_committed_one(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**EAGER)
    sender = transactional(bootstrap, topic)
    for version, keys, end in (
        (1, range(KEYS), sender.commit_transaction),
        (2, range(KEYS), sender.commit_transaction),
        (3, range(KEYS), sender.abort_transaction),
        (4, range(5), sender.commit_transaction),
    ):
        sender.begin_transaction()
        write(sender, topic, version, keys)
        end(WAIT_S)

    def remaining(isolation: str) -> list[tuple[bytes | None, bytes | None]]:
        sender.begin_transaction()
        sender.produce(topic, b"the newest segment is never cleaned", b"other")
        sender.commit_transaction(WAIT_S)
        return [pair for pair in read_pairs(bootstrap, topic, 0, isolation) if pair[0] != b"other"]

    expected = [(b"k%d" % number, b"v2") for number in range(5, KEYS)]
    expected += [(b"k%d" % number, b"v4") for number in range(5)]
    eventually(lambda: remaining("read_committed"), expected)
    eventually(lambda: remaining("read_uncommitted"), expected)
