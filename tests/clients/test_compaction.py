"""Compacted topics as a reader sees them: the newest value of each key, nothing aborted, tombstones gone."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from clients.compacted import EAGER, KEYS, write
from clients.reading import read_pairs
from clients.transactions import transactional
from harness.wait import WAIT_S, eventually


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
