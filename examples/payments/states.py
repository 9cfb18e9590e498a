"""What became of each order, by upsert into SQLite: placed, paid or too late.

    python examples/payments/states.py --database orders.db --once

With --once it stores what is there, and ends. Rows and offsets are one transaction, so it can be killed at
any time.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
from contextlib import closing

import bookkeeping
import shop

from headrace import JSON, Consumer, Message, StoredOffsets, TopicPartition

CREATE = "CREATE TABLE IF NOT EXISTS states (name TEXT PRIMARY KEY, state TEXT)"
# The ledger may be read before the order: "placed" never replaces another state.
PLACE = "INSERT INTO states VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
UPDATE = "INSERT INTO states VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state"


def store(database: sqlite3.Connection, message: Message) -> None:
    value = message.value
    if message.topic == shop.ORDERS:
        database.execute(PLACE, (value["order"], bookkeeping.PLACED))
    elif value["account"] in bookkeeping.STATES:
        database.execute(UPDATE, (value["order"], bookkeeping.STATES[value["account"]]))


def keep_up(servers: str, path: str, *, once: bool) -> None:
    topics = (shop.ORDERS, shop.LEDGERS["v1"])
    places = [TopicPartition(topic, number) for topic in topics for number in range(shop.PARTITIONS)]
    with (
        closing(sqlite3.connect(path)) as database,
        Consumer(servers, isolation_level="read_committed", value_deserializer=JSON) as consumer,
    ):
        offsets = StoredOffsets(database, group="states")
        database.execute(CREATE)
        offsets.create_table()
        database.commit()
        consumer.assign(dict.fromkeys(places, 0) | offsets.load(places))
        ends = consumer.end_offsets(places)
        while not once or any(consumer.position(at) < end for at, end in ends.items()):
            messages = consumer.poll(0.5)
            with database:  # commits, or rolls back
                for message in messages:
                    store(database, message)
                offsets.save(messages)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps the state of each order in a table.")
    parser.add_argument("--servers", default=shop.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--database", required=True, help="the SQLite file")
    parser.add_argument("--once", action="store_true", help="store what is there, then end")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    keep_up(chosen.servers, chosen.database, once=chosen.once)


if __name__ == "__main__":
    main()
