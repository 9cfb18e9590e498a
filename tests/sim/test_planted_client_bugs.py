"""Mistakes made on purpose in our client. Each must be caught within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.consumer import fetcher
from headrace.client.consumer.fetcher import _Asked
from headrace.client.consumer.position import Position
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, KafkaError
from headrace.client.membership.classic_protocol import GroupLeader
from headrace.client.membership.events import CommittedOffset
from headrace.client.producer.idempotence import PartitionSequences
from headrace.client.producer.produce_requests import SentBatch
from headrace.client.producer.sender import Sender
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.steps import Pending
from headrace.records.fetched import Fetched
from headrace.simulator.run import Options, simulate

SEEDS = range(1, 31)
CLIENTS = Options(play="clients")


def caught_by() -> str:
    for seed in SEEDS:
        failure = simulate(seed, CLIENTS).failure
        if failure is not None:
            return failure.judge
    raise AssertionError(f"no judge has noticed in {len(SEEDS)} seeds")


# --- producers ----------------------------------------------------------------------------------------------


def test_a_sequence_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker takes the second batch for a repeat of the first."""

    def stuck(self: PartitionSequences, batch: Any) -> None:
        batch.identify(*self.producer, self.next_sequence)

    monkeypatch.setattr(PartitionSequences, "_number", stuck)
    assert caught_by() in ("order_per_producer", "offsets_keep_their_value", "acked_never_lost")


def test_a_repeat_under_a_new_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may have been written already is sent as if it had not been."""
    set_back = Sender._retry_or_fail

    def careless(self: Sender, now: Any, at: Any, batch: Any, error: ClientError) -> None:
        if not isinstance(error, KafkaError) and self.transaction is None and self.settings.is_idempotent:
            self.sequences.want_restart(at)
        set_back(self, now, at, batch, error)

    monkeypatch.setattr(Sender, "_retry_or_fail", careless)
    assert caught_by() == "no_duplicates"


def test_batches_that_are_put_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def behind_all(self: Sender, at: Any, batch: Any) -> None:
        self.accumulator.put_back(batch, len(batch.queue.waiting))

    monkeypatch.setattr(Sender, "_put_back", behind_all)
    assert caught_by() in ("order_per_producer", "progress_after_healing")


def test_a_lost_answer_that_is_taken_for_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_back = Sender._retry_or_fail

    def hopeful(self: Sender, now: Any, at: Any, batch: Any, error: ClientError) -> None:
        if isinstance(error, KafkaError):
            set_back(self, now, at, batch, error)
        else:
            numbers = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
            self._complete(at, SentBatch(batch, *numbers), self.sequences.of(at).last_acked_offset + 1, -1)

    monkeypatch.setattr(Sender, "_retry_or_fail", hopeful)
    assert caught_by() in ("acked_after_fsync", "acked_never_lost", "offsets_keep_their_value")


def test_memory_that_is_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "_finish", lambda self, batch: self._settled.append(batch))
    assert caught_by() == "progress_after_healing"


# --- transactions -------------------------------------------------------------------------------------------


def test_a_commit_before_the_records_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = TransactionSession.advance

    def hasty(self: TransactionSession, now: Any, *, is_drained: bool) -> None:
        advance(self, now, is_drained=True)

    monkeypatch.setattr(TransactionSession, "advance", hasty)
    # what is still under way belongs to no transaction any more, as the machine itself notices
    assert caught_by() in ("transactions_all_or_nothing", "copied_exactly_once", "nothing_is_raised")


def test_offsets_that_do_not_join_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(self: TransactionSession, offsets: Any, member: Any) -> Pending[None]:
        pending: Pending[None] = Pending("nothing")
        pending.finish()
        return pending

    monkeypatch.setattr(TransactionSession, "send_offsets", forgotten)
    assert caught_by() == "copied_exactly_once"


def test_aborted_records_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*arguments: Any, aborted: Any, **more: Any) -> Any:
        return Fetched(*arguments, **more)

    monkeypatch.setattr(fetcher, "Fetched", blind)
    assert caught_by() == "reads_skip_nothing"


# --- consumers and groups -----------------------------------------------------------------------------------


def test_a_position_that_a_stale_answer_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Asked, "is_still_wanted", lambda self: True)
    # what an earlier question brought is taken for the records at the new position
    assert caught_by() in ("reads_skip_nothing", "nothing_is_raised")


def test_a_commit_before_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Automatic commits cover what was handed out this very moment."""
    take = ConsumerSession.take_records

    def hasty(self: ConsumerSession, now: Any, max_records: int) -> Any:
        messages = take(self, now, max_records)
        self._save(now)
        return messages

    monkeypatch.setattr(ConsumerSession, "take_records", hasty)
    assert caught_by() == "handled_at_least_once"


def test_a_commit_of_what_is_only_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def ahead(self: Position) -> CommittedOffset | None:
        return CommittedOffset(self.fetch_offset, self.epoch) if self.is_known else None

    monkeypatch.setattr(Position, "committable", ahead)
    assert caught_by() == "handled_at_least_once"


def test_a_leader_that_gives_a_partition_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = GroupLeader.shares

    def generous(self: GroupLeader, assignor: Any, topics: Any) -> Any:
        shared = shares(self, assignor, topics)
        for share in shared:
            share.assignment = max((each.assignment for each in shared), key=len)
        return shared

    monkeypatch.setattr(GroupLeader, "shares", generous)
    assert caught_by() == "one_owner_per_generation"
