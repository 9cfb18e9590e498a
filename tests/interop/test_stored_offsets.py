"""Offsets beside the results in PostgreSQL, Debian's server: crashes and zombies as with SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from harness.broker import Broker
from harness.ledger import BALANCES, LEDGER, balances, book, deposit, read_until_done
from harness.postgres import postgres
from headrace import Consumer, Message, OffsetsMovedOn, StoredOffsets

WAIT_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture
def database(server: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server) as connection:
        connection.execute("DROP TABLE IF EXISTS ledger, headrace_offsets")
        connection.execute(LEDGER)
        connection.commit()
        yield connection


@pytest.fixture(params=[0, 1], ids=["kafka", "headrace"])
def bootstrap(request: pytest.FixtureRequest, brokers: tuple[Broker, Broker], topic: str) -> str:
    chosen = brokers[request.param].bootstrap
    deposit(chosen, topic)
    return chosen


@contextmanager
def transaction(connection: psycopg.Connection[Any]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def book_and_save(
    connection: psycopg.Connection[Any], offsets: StoredOffsets, messages: list[Message]
) -> None:
    with transaction(connection):
        book(connection, messages, "%s")
        offsets.save(messages)


def test_crashes_between_messages_and_commits(
    bootstrap: str, topic: str, database: psycopg.Connection[Any]
) -> None:
    offsets = StoredOffsets(database, group="bank")
    offsets.create_table()
    database.commit()
    crashes = 0
    while not read_until_done(
        bootstrap,
        topic,
        database,
        offsets,
        lambda: transaction(database),
        crash_after=4 + 3 * crashes,
        mark="%s",
    ):
        crashes += 1
    assert crashes > 3
    assert balances(database) == BALANCES


def test_a_member_that_was_taken_for_dead(
    bootstrap: str, topic: str, server: str, database: psycopg.Connection[Any]
) -> None:
    """It has begun its transaction before another member took over, and finishes it later: one of them has to
    wait for the other, and then cannot go on.
    """
    offsets = StoredOffsets(database, group="bank")
    offsets.create_table()
    database.commit()
    with psycopg.connect(server) as another, Consumer(bootstrap) as slow, Consumer(bootstrap) as quick:
        stale = StoredOffsets(another, group="bank")
        for consumer in (slow, quick):
            consumer.assign({(topic, 0): 0})
        first = quick.poll(WAIT_S, max_records=2)
        book_and_save(database, offsets, first)
        late = slow.poll(WAIT_S, max_records=5)
        with pytest.raises(OffsetsMovedOn):
            book_and_save(another, stale, late)
        stale.rewind(slow, late)
        rest = slow.poll(WAIT_S, max_records=5)
        assert rest[0].offset == 2
        book_and_save(another, stale, rest)
        again = quick.poll(WAIT_S, max_records=1)
        with pytest.raises(OffsetsMovedOn):
            book_and_save(database, offsets, again)
    assert balances(database) == {"alice": sum(range(2 + len(rest)))}
