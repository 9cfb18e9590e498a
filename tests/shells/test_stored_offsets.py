"""Offsets beside the results in SQLite: a crash anywhere leaves every message counted once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from harness.ledger import BALANCES, LEDGER, balances, book, deposit, read_until_done
from harness.wait import WAIT_S
from headrace import Consumer, InvalidInput, Message, OffsetsMovedOn, StoredOffsets
from headrace.testing import Broker


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(LEDGER)
        yield connection


@pytest.fixture
def servers(headrace_broker: Broker) -> str:
    deposit(headrace_broker.bootstrap_servers, "deposits")
    return headrace_broker.bootstrap_servers


def book_and_save(database: sqlite3.Connection, offsets: StoredOffsets, messages: list[Message]) -> None:
    with database:
        book(database, messages)
        offsets.save(messages)


@pytest.mark.parametrize("shape", ["qmark", "named"])
def test_crashes_between_messages_and_commits(servers: str, database: sqlite3.Connection, shape: str) -> None:
    offsets = StoredOffsets(database, group="bank", paramstyle=shape)
    offsets.create_table()
    crashes = 0
    while not read_until_done(
        servers, "deposits", database, offsets, lambda: database, crash_after=4 + 3 * crashes
    ):
        crashes += 1
    assert crashes > 3
    assert balances(database) == BALANCES


def test_whoever_was_thought_dead_does_no_harm(servers: str, database: sqlite3.Connection) -> None:
    """Two members that believe to own the same partitions: what one has booked, the other cannot book."""
    offsets = StoredOffsets(database, group="bank")
    offsets.create_table()
    with Consumer(servers) as slow, Consumer(servers) as quick:
        for consumer in (slow, quick):
            consumer.assign({("deposits", 0): 0, ("deposits", 1): 0})
        late = slow.poll(WAIT_S, max_records=5)
        while len(offsets.load([("deposits", 0), ("deposits", 1)])) < 2:
            messages = quick.poll(WAIT_S)
            book_and_save(database, offsets, messages)
        before = balances(database)
        with pytest.raises(
            OffsetsMovedOn, match=r"the database already has offset \d+ of partition deposits-"
        ):
            book_and_save(database, offsets, late)
        assert balances(database) == before
        offsets.rewind(slow, late)
        at = ("deposits", late[0].partition)
        assert slow.position(at) == offsets.load([at])[at]  # type: ignore[index]


def test_a_transaction_that_is_rolled_back_is_done_again(servers: str, database: sqlite3.Connection) -> None:
    offsets = StoredOffsets(database, group="bank")
    offsets.create_table()
    with Consumer(servers) as consumer:
        consumer.assign({("deposits", 0): 0})
        messages = consumer.poll(WAIT_S, max_records=3)
        offsets.save(messages)
        database.rollback()
        offsets.rewind(consumer, messages)
        assert consumer.poll(WAIT_S, max_records=3) == messages
        with database:
            offsets.save(messages)
        assert offsets.load([("deposits", 0)]) == {("deposits", 0): 3}
        offsets.rewind(consumer, messages)
        assert consumer.position(("deposits", 0)) == 3


def test_groups_do_not_know_each_other(database: sqlite3.Connection) -> None:
    one, other = StoredOffsets(database, group="one"), StoredOffsets(database, group="other")
    one.create_table()
    one.create_table()
    one.save([Message("deposits", 0, 6), Message("deposits", 0, 9)])
    assert one.load([("deposits", 0), ("deposits", 1)]) == {("deposits", 0): 10}
    assert other.load([("deposits", 0)]) == {}


@pytest.mark.parametrize(
    "given", [{"table": "offsets; DROP TABLE ledger"}, {"paramstyle": "braces"}, {"connection": object()}]
)
def test_what_cannot_be(database: sqlite3.Connection, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        StoredOffsets(given.pop("connection", database), group="bank", **given)
