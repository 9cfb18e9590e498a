"""docs/client/offsets-in-a-database.md says what happens."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from docs.fenced import to_run
from headrace import Consumer, StoredOffsets
from headrace.testing import Broker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client" / "offsets-in-a-database.md").read_text()


def test_the_page(headrace_broker: Broker) -> None:
    names: dict[str, Any] = {}
    for block in to_run("docs/client/offsets-in-a-database.md"):
        exec(block.text, names)
    headrace_broker.create_topic("orders")
    headrace_broker.produce_all("orders", [("alice", "first"), ("bob", "second")])
    servers = headrace_broker.bootstrap_servers
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE bills (customer BLOB UNIQUE, what BLOB)")
        while not bills(database):
            names["book_orders"](servers, database, polls=1)
        assert bills(database) == [(b"alice", b"first"), (b"bob", b"second")]
        names["book_orders"](servers, database, polls=1)
        assert len(bills(database)) == 2
        headrace_broker.produce_all("orders", [("carol", "third"), ("alice", "twice")])
        offsets = StoredOffsets(database, group="billing")
        with Consumer(servers) as consumer:
            consumer.assign(offsets.load([("orders", 0)]))
            for _ in range(2):
                with pytest.raises(sqlite3.IntegrityError):
                    names["book_or_go_back"](consumer, database, offsets)
        assert len(bills(database)) == 2
        columns = [row[1] for row in database.execute("PRAGMA table_info(headrace_offsets)")]
        assert all(f"`{column}`" in PAGE for column in columns)


def bills(database: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
    return list(database.execute("SELECT customer, what FROM bills ORDER BY customer"))
