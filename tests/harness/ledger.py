"""Deposits that are booked in a database, by readers that crash: every one counts once, or the sums tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from harness.wait import WAIT_S
from headrace import Consumer, Message, StoredOffsets

LEDGER = "CREATE TABLE ledger (customer VARCHAR(20), amount INTEGER)"
CUSTOMERS = ("alice", "bob")
DEPOSITS = 20  # of each customer, who has a partition of his own
BALANCES = {customer: sum(range(DEPOSITS)) for customer in CUSTOMERS}


class Crash(Exception):
    """The process is killed here."""


def deposit(bootstrap: str, topic: str) -> None:
    """Makes the topic and fills it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 2)], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    sender = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for amount in range(DEPOSITS):
        for partition, customer in enumerate(CUSTOMERS):
            sender.produce(topic, str(amount), customer, partition)
    assert sender.flush(WAIT_S) == 0


def book(database: Any, messages: Iterable[Message], mark: str = "?") -> None:
    cursor = database.cursor()
    for message in messages:
        row = (message.key.decode(), int(message.value))
        cursor.execute(f"INSERT INTO ledger VALUES ({mark}, {mark})", row)


def balances(database: Any) -> dict[str, int]:
    cursor = database.cursor()
    cursor.execute("SELECT customer, SUM(amount) FROM ledger GROUP BY customer")
    return {customer: int(amount) for customer, amount in cursor.fetchall()}


def read_until_done(
    bootstrap: str,
    topic: str,
    database: Any,
    offsets: StoredOffsets,
    transaction: Callable[[], AbstractContextManager[Any]],
    *,
    crash_after: int,
    mark: str = "?",
) -> bool:
    """Whether everything was booked before the crash, which comes in the middle of a transaction; the
    `transaction` commits or rolls back.
    """
    settings: dict[str, Any] = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    places = [(topic, partition) for partition in range(len(CUSTOMERS))]
    with Consumer(bootstrap, max_poll_records=3, **settings) as consumer:
        consumer.subscribe(topic, listener=offsets)
        try:
            while sum(offsets.load(places).values()) < DEPOSITS * len(CUSTOMERS):
                messages = consumer.poll(WAIT_S)
                with transaction():
                    book(database, messages, mark)
                    offsets.save(messages)
                    crash_after -= len(messages)
                    if crash_after <= 0:
                        raise Crash
        except Crash:
            return False
    return True
