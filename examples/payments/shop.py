"""A shop: a seeded generator of orders and payments, written in transactions, some of which are aborted.

    python examples/payments/shop.py --orders 2000

A customer who gives up at the checkout aborts the transaction with the order. The payment provider aborts
one, too, when it notices a wrong amount, and sends the payment again with the right one. Or it forgets that
it has sent a payment, and sends it twice. Most payments come within an hour, some later, some never.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
from collections.abc import Iterator
from typing import NamedTuple

from headrace import JSON, Admin, Producer

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
ORDERS, PAYMENTS, LEDGERS = "orders", "payments", {"v1": "ledger", "v2": "ledger_v2"}
PARTITIONS = 3
START_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS = 3_600_000
LATEST_MS = 3 * HOUR_MS  # no payment comes later than that


class Order(NamedTuple):
    order: str
    cents: int
    ordered_at_ms: int


class Payment(NamedTuple):
    payment: str
    order: str
    cents: int
    paid_at_ms: int


class Transaction(NamedTuple):
    record: Order | Payment
    at_ms: int
    commits: bool


def transactions(orders: int, seed: int) -> Iterator[Transaction]:
    """In the order of time."""
    rng = random.Random(seed)
    coming: list[tuple[int, Payment]] = []
    now_ms = START_MS
    for number in range(orders):
        now_ms += rng.randrange(1, 60_000)
        while coming and coming[0][0] <= now_ms:
            yield from _payments(rng, *heapq.heappop(coming))
        order = Order(f"order-{number:05}", rng.randrange(100, 20_000), now_ms)
        commits = rng.random() < 0.9
        yield Transaction(order, now_ms, commits)
        if commits and rng.random() < 0.9:
            hours = 1 if rng.random() < 0.95 else 3
            paid_at_ms = now_ms + rng.randrange(1, hours * HOUR_MS)
            payment = Payment(f"payment-{number:05}", order.order, order.cents, paid_at_ms)
            heapq.heappush(coming, (paid_at_ms, payment))
            if rng.random() < 0.05:
                heapq.heappush(coming, (paid_at_ms + rng.randrange(1, 600_000), payment))
    while coming:
        yield from _payments(rng, *heapq.heappop(coming))


def _payments(rng: random.Random, at_ms: int, payment: Payment) -> Iterator[Transaction]:
    if rng.random() < 0.1:
        wrong = payment._replace(cents=payment.cents * 10)
        yield Transaction(wrong, at_ms, commits=False)
    yield Transaction(payment, at_ms, commits=True)


def publish(servers: str, orders: int, seed: int) -> int:
    published = 0
    with (
        Producer(servers, transactional_id="shop-good", value_serializer=JSON) as good,
        Producer(servers, transactional_id="shop-bad", value_serializer=JSON) as bad,
    ):
        for producer in (good, bad):
            producer.init_transactions()
            producer.begin_transaction()
        for number, (record, at_ms, commits) in enumerate(transactions(orders, seed), 1):
            topic = ORDERS if isinstance(record, Order) else PAYMENTS
            producer = good if commits else bad
            producer.send(topic, record._asdict(), record.order, timestamp_ms=at_ms)
            published += commits
            if number % 50 == 0:  # a transaction has many records, which is quicker
                end(good, bad)
                good.begin_transaction()
                bad.begin_transaction()
        end(good, bad)
    return published


def end(good: Producer, bad: Producer) -> None:
    bad.flush()  # they are in the log, before the others: a reader has to know that they do not count
    good.commit_transaction()
    bad.abort_transaction()


def create_topics(servers: str) -> None:
    with Admin(servers) as admin:
        there = {topic.name for topic in admin.list_topics()}
        for topic in (ORDERS, PAYMENTS, *LEDGERS.values()):
            if topic not in there:  # all of it is of a fixed day, so it must not expire
                admin.create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": -1})


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes orders and payments.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--orders", type=int, default=2_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other orders")
    chosen = parser.parse_args()
    create_topics(chosen.servers)
    published = publish(chosen.servers, chosen.orders, chosen.seed)
    print(f"{published} orders and payments", flush=True)


if __name__ == "__main__":
    main()
