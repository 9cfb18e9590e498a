"""Gateways: each is a group of its own, gets every message of every chat, and shows it to its users.

    python examples/chat_fanout/gateways.py --database gateways.db --groups 50

50 gateways are 50 consumers in one process, with asyncio. What a gateway has shown is a row per chat in
SQLite: the number of messages and a hash of their sequence. Row and offset are one transaction, so a gateway
that is killed shows nothing twice, and skips nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sqlite3

import people

from headrace import JSON, Message, OffsetsMovedOn, StoredOffsets
from headrace.aio import Consumer

CREATE = """CREATE TABLE IF NOT EXISTS shown (
    gateway TEXT, chat TEXT, messages INTEGER, digest TEXT, PRIMARY KEY (gateway, chat))"""
FIND = "SELECT messages, digest FROM shown WHERE gateway = ? AND chat = ?"
STORE = "INSERT OR REPLACE INTO shown VALUES (?, ?, ?, ?)"


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=60)
    database.execute("PRAGMA journal_mode=WAL")  # whoever looks does not hold up the gateways
    with database:
        database.execute(CREATE)
        StoredOffsets(database, group="").create_table()
    return database


def show(database: sqlite3.Connection, gateway: str, messages: list[Message]) -> None:
    chats: dict[str, tuple[int, str]] = {}
    for message in messages:
        chat = message.value["chat"]
        if chat not in chats:
            chats[chat] = database.execute(FIND, (gateway, chat)).fetchone() or (0, "")
        number, digest = chats[chat]
        chats[chat] = number + 1, people.following(digest, message.value)
    database.executemany(STORE, [(gateway, chat, *seen) for chat, seen in chats.items()])


async def serve(servers: str, database: sqlite3.Connection, gateway: str) -> None:
    offsets = StoredOffsets(database, group=gateway)
    async with Consumer(
        servers,
        group_id=gateway,
        group_instance_id=gateway,  # after a restart it continues at once
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=JSON,
    ) as consumer:
        consumer.subscribe([people.MODERATED], listener=offsets)
        while True:
            messages = await consumer.poll(1)
            try:
                with database:  # commits, or rolls back; the other gateways wait, for there is no await
                    show(database, gateway, messages)
                    offsets.save(messages)
            except OffsetsMovedOn:
                offsets.rewind(consumer, messages)


async def serve_all(servers: str, path: str, first: int, groups: int) -> None:
    database = open_database(path)
    async with asyncio.TaskGroup() as tasks:
        for number in range(first, first + groups):
            tasks.create_task(serve(servers, database, f"gateway-{number:02}"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs gateways, each of which gets every message.")
    parser.add_argument("--servers", default=people.SERVERS, help="the brokers (default: %(default)s)")
    parser.add_argument("--database", required=True, help="the SQLite file for what was shown")
    parser.add_argument("--first", type=int, default=0, help="the number of the first gateway")
    parser.add_argument("--groups", type=int, default=50, help="how many gateways (default: %(default)s)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(serve_all(chosen.servers, chosen.database, chosen.first, chosen.groups))


if __name__ == "__main__":
    main()
