"""What comes out of fetched bytes: transactions, control batches, columns, and how the two ways agree."""

from __future__ import annotations

import pytest

from harness.scripted_consumer import (
    A0,
    A1,
    ScriptedConsumer,
    data,
    end_of_transaction,
    of_transaction,
    offsets,
    rows,
)
from headrace.client.errors import BadResponse
from headrace.protocol.messages.fetch import AbortedTransaction
from headrace.records._columns import Columns


def aborted(*began: tuple[int, int]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in began]


def transactions() -> bytes:
    """0–1 of producer 5, 2–3 of producer 6, 4: 5 aborts, 5: 6 commits, 6–7 of nobody's transaction."""
    return b"".join(
        [
            of_transaction(0, 2, producer_id=5),
            of_transaction(2, 2, producer_id=6),
            end_of_transaction(4, 5, commits=False),
            end_of_transaction(5, 6, commits=True),
            rows(6, 2),
        ]
    )


def test_whoever_reads_committed_sees_no_aborted_record() -> None:
    consumer = ScriptedConsumer(isolation=1)
    consumer.reading(A0)
    request, flight = consumer.fetch()
    assert request.isolation_level == 1
    consumer.bring(flight, data(0, transactions(), end=8, aborted_transactions=aborted((5, 0))))
    assert consumer.take() == [(0, 2), (0, 3), (0, 6), (0, 7)]
    assert consumer.session.position(A0) == 8


def test_others_see_all_but_the_markers() -> None:
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, transactions(), end=8, aborted_transactions=aborted((5, 0))))
    assert consumer.take() == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 6), (0, 7)]


def test_a_position_steps_over_what_is_nobodys_to_read() -> None:
    """Otherwise a group's lag would never be zero."""
    consumer = ScriptedConsumer(isolation=1)
    consumer.reading(A0)
    _, flight = consumer.fetch()
    only = of_transaction(0, 2, producer_id=5) + end_of_transaction(2, 5, commits=False)
    consumer.bring(flight, data(0, only, end=3, aborted_transactions=aborted((5, 0))))
    assert consumer.session.has_news
    assert consumer.take() == []
    assert (consumer.session.position(A0), consumer.session.lag(A0)) == (3, 0)
    assert not consumer.session.has_news
    assert consumer.session.needs_turn, "there is room again"


def test_the_lag_of_who_reads_committed_ends_at_the_first_open_transaction() -> None:
    for isolation, lag in ((0, 10), (1, 4)):
        consumer = ScriptedConsumer(isolation=isolation)
        consumer.reading(A0)
        _, flight = consumer.fetch()
        consumer.bring(flight, data(0, end=10, last_stable_offset=4))
        assert consumer.session.lag(A0) == lag


def test_columns_hold_what_messages_would() -> None:
    consumer = ScriptedConsumer(isolation=1)
    consumer.reading(A0, A1)
    _, flight = consumer.fetch()
    found = data(0, transactions(), end=8, aborted_transactions=aborted((5, 0)))
    consumer.bring(flight, found, data(1, rows(0, 3)))
    assert consumer.take(1) == [(0, 2)]
    records, size = consumer.session.buffered()
    assert (records >= 6, size >= 6) == (True, True)
    columns = Columns(records, size)
    assert consumer.session.take_columns(consumer.now, columns)
    assert columns.row_count == 6
    assert (consumer.session.position(A0), consumer.session.position(A1)) == (8, 3)
    assert not consumer.session.take_columns(consumer.now, columns)
    assert consumer.session.metrics().records == 7
    assert consumer.session.metrics().buffered_bytes == 0
    assert consumer.session.buffered() == (0, 0)


def test_damaged_records_end_columns_as_they_end_messages() -> None:
    damaged = bytearray(rows(3, 3))
    damaged[-1] ^= 1
    consumer = ScriptedConsumer()
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, rows(0, 3) + bytes(damaged)))
    columns = Columns()
    assert consumer.session.take_columns(consumer.now, columns)
    assert columns.row_count == 3
    with pytest.raises(BadResponse, match="a-0 at offset 3"):
        consumer.session.take_columns(consumer.now, columns)
    assert consumer.session.position(A0) == 3


def test_checksums_are_not_checked_for_who_does_not_want_it() -> None:
    wrong = bytearray(rows(0, 3))
    wrong[17] ^= 1  # the checksum itself
    consumer = ScriptedConsumer(checks_crcs=False)
    consumer.reading(A0)
    _, flight = consumer.fetch()
    consumer.bring(flight, data(0, bytes(wrong)))
    assert consumer.take() == offsets(0, 3)
