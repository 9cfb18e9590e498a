"""Writes the counts to a database, exactly once: counts and offsets are one transaction.

    python examples/ad_clicks/to_database.py --database sqlite:clicks.db
    python examples/ad_clicks/to_database.py --database postgresql://localhost/ads     # pip install psycopg

The database holds the offsets beside the counts. The program can be killed at any time; it continues after
the last committed transaction. A second one, with another --member, takes over some of the partitions.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace import JSON, Consumer, Message, OffsetsMovedOn, StoredOffsets

SERVERS = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
TOPIC = TABLE = GROUP = "clicks_per_minute"

CREATE = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    ad VARCHAR(100), minute TIMESTAMPTZ, clicks BIGINT NOT NULL, PRIMARY KEY (ad, minute))"""

# An upsert: if the pipeline is started again from the beginning, its counts replace the old ones.
UPSERT = f"""INSERT INTO {TABLE} (ad, minute, clicks) VALUES ({{mark}}, {{mark}}, {{mark}})
    ON CONFLICT (ad, minute) DO UPDATE SET clicks = excluded.clicks"""


def keep_up(servers: str, address: str, member: str) -> None:
    """Run until Ctrl-C; the broker may be restarted meanwhile."""
    database, upsert = connect(address)
    offsets = prepared(database)
    with Consumer(
        servers,
        group_id=GROUP,
        group_instance_id=member,  # after a restart it gets its partitions back at once
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=JSON,
    ) as consumer:
        consumer.subscribe([TOPIC], listener=offsets)
        while True:
            messages = consumer.poll(timeout=1)
            try:
                with transaction(database):
                    store(database, upsert, messages)
                    offsets.save(messages)
            except OffsetsMovedOn:  # another member has done them
                offsets.rewind(consumer, messages)


def prepared(database: Any) -> StoredOffsets:
    """The tables are there afterwards."""
    offsets = StoredOffsets(database, group=GROUP)
    with transaction(database):
        database.execute(CREATE)
        offsets.create_table()
    return offsets


def store(database: Any, upsert: str, messages: list[Message]) -> None:
    for message in messages:
        count = message.value
        database.execute(upsert, (count["ad"], count["minute"], count["clicks"]))


def connect(address: str) -> tuple[Any, str]:
    """A connection, and the upsert in its dialect: all that is different is how parameters are marked."""
    if address.startswith("sqlite:"):
        return sqlite3.connect(address.removeprefix("sqlite:")), UPSERT.format(mark="?")
    import psycopg

    return psycopg.connect(address), UPSERT.format(mark="%s")


@contextmanager
def transaction(database: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        database.rollback()
        raise
    database.commit()


def main() -> None:
    parser = argparse.ArgumentParser(description=f"Keeps a database table up to date with topic {TOPIC}.")
    parser.add_argument("--servers", default=SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--database", required=True, help="sqlite:FILE or postgresql://HOST/DATABASE")
    parser.add_argument("--member", default="1", help="its name in the consumer group (default: %(default)s)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        keep_up(chosen.servers, chosen.database, chosen.member)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
