"""The bookkeeper: joins orders with payments, and writes the ledger, each entry exactly once.

    python examples/payments/ledger.py --worker 1
    python examples/payments/ledger.py --worker 1 --version v2 --since 2026-01-01T06:00

Entries and progress are one transaction. Each version of the ledger has a topic and a group of its own, so a
changed program writes v2 beside v1. With --since, v2 begins at that time: the worker reads the hours before
it only to know the orders that are still waiting for their payments.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import shop
from bookkeeping import Book, Entry

from headrace import (
    JSON,
    Consumer,
    Message,
    Producer,
    RebalanceListener,
    TopicPartition,
    TransactionMustAbort,
)


class Books(RebalanceListener):
    """A book for each partition that this worker has. Order and payment have the same key, and their topics
    as many partitions: what belongs together has one partition number.
    """

    def __init__(self, servers: str, since_ms: int) -> None:
        self.servers, self.since_ms = servers, since_ms
        self._books: dict[int, Book] = {}

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.begin(consumer, partitions)

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._books.clear()

    def begin(self, consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """At the committed offsets; where there are none, at the first record that matters."""
        self._books.clear()
        for at, offset in self._following(consumer, list(partitions)).items():
            consumer.seek(at, offset)

    def add(self, consumer: Any, message: Message) -> list[Entry]:
        if message.partition not in self._books:
            self._books[message.partition] = self._replay(consumer, message.partition)
        made = add(self._books[message.partition], message)
        return [entry for entry in made if entry.at_ms >= self.since_ms]

    def _following(self, consumer: Any, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        first = self._first(consumer, partitions)
        committed = consumer.committed(partitions)
        return {at: first[at] if committed[at] is None else committed[at].offset for at in partitions}

    def _first(self, consumer: Any, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, max(self.since_ms - shop.LATEST_MS, 0)))
        ends = consumer.end_offsets(partitions)  # where nothing is as late
        return {at: ends[at] if found[at] is None else found[at].offset for at in partitions}

    def _replay(self, consumer: Any, partition: int) -> Book:
        """What was read and committed before: a book can be made again at any time."""
        book = Book()
        places = [TopicPartition(topic, partition) for topic in (shop.ORDERS, shop.PAYMENTS)]
        ends = self._following(consumer, places)
        with Consumer(self.servers, isolation_level="read_committed", value_deserializer=JSON) as reader:
            reader.assign(self._first(reader, places))
            while any(reader.position(at) < end for at, end in ends.items()):
                for message in reader.poll(0.5):
                    if message.offset < ends[TopicPartition(message.topic, partition)]:
                        add(book, message)
        return book


def add(book: Book, message: Message) -> list[Entry]:
    if message.topic == shop.ORDERS:
        return book.add_order(shop.Order(**message.value))
    return book.add_payment(shop.Payment(**message.value))


def work(servers: str, worker: str, version: str, since_ms: int, batch: int) -> None:
    books = Books(servers, since_ms)
    with (
        Consumer(
            servers,
            group_id=f"ledger-{version}",
            group_instance_id=f"worker-{worker}",  # after a restart it gets its partitions back at once
            partition_assignment_strategy="range",  # a worker gets the same partitions of both topics
            isolation_level="read_committed",
            enable_auto_commit=False,
            value_deserializer=JSON,
        ) as consumer,
        Producer(
            servers,
            transactional_id=f"ledger-{version}-{worker}",
            transaction_timeout_ms=30_000,
            value_serializer=JSON,
        ) as producer,
    ):
        producer.init_transactions()  # aborts what this worker left open when it was killed
        consumer.subscribe([shop.ORDERS, shop.PAYMENTS], listener=books)
        while True:
            messages = consumer.poll(0.5, max_records=batch)
            if not messages:
                continue
            entries = [entry for message in messages for entry in books.add(consumer, message)]
            try:
                with producer.transaction():
                    for entry in entries:
                        producer.send(shop.LEDGERS[version], entry._asdict(), entry.order)
                    following = {(m.topic, m.partition): m.offset + 1 for m in messages}
                    producer.send_offsets(following, consumer)
            except TransactionMustAbort:  # it is aborted by now: from the last committed offsets once more
                books.begin(consumer, consumer.assignment)


def main() -> None:
    parser = argparse.ArgumentParser(description="Joins orders with payments, and writes the ledger.")
    parser.add_argument("--servers", default=shop.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--worker", required=True, help="a name of its own, the same after a restart")
    parser.add_argument("--version", choices=shop.LEDGERS, default="v1", help="which ledger to write")
    parser.add_argument("--since", help="the time of the first entry, in UTC; always the same for a version")
    parser.add_argument("--batch", type=int, default=500, help="records of a transaction at most")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    work(chosen.servers, chosen.worker, chosen.version, milliseconds(chosen.since), chosen.batch)


def milliseconds(time: str | None) -> int:
    if time is None:
        return 0
    return round(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000)


if __name__ == "__main__":
    main()
