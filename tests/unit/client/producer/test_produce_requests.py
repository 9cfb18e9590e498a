"""What an answer means for one batch: Kafka's rules for sequences, as a table."""

from __future__ import annotations

import pytest

from harness.producer_simulation import NobodyWaits
from headrace.client.producer._batch import Batch, PartitionQueue, rebatch
from headrace.client.producer.idempotence import PartitionSequences
from headrace.client.producer.produce_requests import Outcome, outcome_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import PartitionProduceResponse

LANE = PartitionQueue("t", 0, 1000, NobodyWaits())
OUT_OF_ORDER, UNKNOWN = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID


def batch(sequence: int, count: int = 5) -> Batch:
    made = rebatch(LANE, 0.0, [(0, None, b"v", ())] * count)
    made.identify(1, 0, sequence)
    return made


def order(*, acked: int = -1, acked_offset: int = -1, unresolved: int | None = None) -> PartitionSequences:
    made = PartitionSequences((1, 0))
    made.last_acked_sequence, made.last_acked_offset, made.unresolved = acked, acked_offset, unresolved
    return made


def verdict(code: int, sequence: int, known: PartitionSequences | None, **more: object) -> Outcome:
    told = PartitionProduceResponse(
        index=0, error_code=code, base_offset=-1, log_start_offset=int(str(more.pop("log_start", -1)))
    )
    asked = {"was_renumbered": False, "is_transactional": False} | more
    return outcome_of(
        told,
        batch(sequence),
        known,
        was_renumbered=bool(asked["was_renumbered"]),
        is_transactional=bool(asked["is_transactional"]),
    )


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
def test_a_repeat_that_the_broker_knows_is_delivered(code: int) -> None:
    assert verdict(code, 0, order()) is Outcome.DELIVERED


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Outcome.RETRY),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Outcome.REFUSED),
        (ErrorCode.MESSAGE_TOO_LARGE, Outcome.TOO_LARGE),
        (OUT_OF_ORDER, Outcome.REFUSED),
        (9999, Outcome.REFUSED),
    ],
)
def test_without_idempotence_only_the_code_counts(code: int, expected: Outcome) -> None:
    assert verdict(code, 0, None) is expected


class TestOutOfOrder:
    def test_before_its_turn_it_is_tried_again(self) -> None:
        assert verdict(OUT_OF_ORDER, 10, order(acked=4)) is Outcome.RETRY

    def test_in_its_turn_the_gap_is_real(self) -> None:
        assert verdict(OUT_OF_ORDER, 5, order(acked=4)) is Outcome.RESTART
        assert verdict(OUT_OF_ORDER, 0, order()) is Outcome.RESTART
        assert verdict(OUT_OF_ORDER, 0, order(acked=(1 << 31) - 1)) is Outcome.RESTART, "sequences wrap"

    def test_in_a_transaction_a_gap_is_the_end(self) -> None:
        assert verdict(OUT_OF_ORDER, 5, order(acked=4), is_transactional=True) is Outcome.REFUSED

    def test_behind_what_expired_only_the_next_one_proves_a_gap(self) -> None:
        assert verdict(OUT_OF_ORDER, 10, order(acked=4, unresolved=10)) is Outcome.RESTART
        assert verdict(OUT_OF_ORDER, 15, order(acked=4, unresolved=10)) is Outcome.RETRY

    def test_an_error_about_old_numbers_says_nothing(self) -> None:
        for code in (OUT_OF_ORDER, UNKNOWN, ErrorCode.INVALID_PRODUCER_EPOCH):
            assert verdict(code, 0, order(), was_renumbered=True) is Outcome.RETRY


class TestUnknownProducer:
    def test_without_the_log_start_it_is_tried_until_that_is_told(self) -> None:
        assert verdict(UNKNOWN, 5, order(acked=4, acked_offset=40)) is Outcome.RETRY

    def test_when_retention_took_all_it_starts_over(self) -> None:
        known = order(acked=4, acked_offset=40)
        assert verdict(UNKNOWN, 5, known, log_start=41) is Outcome.RESTART
        assert verdict(UNKNOWN, 5, known, log_start=41, is_transactional=True) is Outcome.RESTART

    def test_when_records_are_still_there_a_transaction_cannot_go_on(self) -> None:
        known = order(acked=4, acked_offset=40)
        assert verdict(UNKNOWN, 5, known, log_start=0) is Outcome.RESTART
        assert verdict(UNKNOWN, 5, known, log_start=0, is_transactional=True) is Outcome.REFUSED


class TestOrder:
    def test_sequences_wrap_behind_the_largest_int32(self) -> None:
        known = order()
        known.next_sequence = (1 << 31) - 3
        known.track(first := batch(-1))
        known.track(second := batch(-1))
        assert (first.base_sequence, second.base_sequence) == ((1 << 31) - 3, 2)
        known.last_acked_sequence = (1 << 31) - 4
        known.acknowledged(first, 0)
        assert known.last_acked_sequence == 1
        assert known.follows(second.base_sequence)

    def test_an_answer_that_was_overtaken_moves_nothing_back(self) -> None:
        known = order()
        known.track(first := batch(-1))
        known.track(second := batch(-1))
        known.acknowledged(second, 5)
        known.acknowledged(first, 0)
        assert (known.last_acked_sequence, known.last_acked_offset) == (9, 9)

    def test_a_restart_numbers_what_is_tracked_from_zero(self) -> None:
        known = order()
        known.track(first := batch(-1))
        known.track(second := batch(-1))
        known.track(third := batch(-1))
        known.drop(first)
        known.restart((1, 1))
        assert (second.base_sequence, third.base_sequence, known.next_sequence) == (0, 5, 10)
        assert {each.producer_epoch for each in (second, third)} == {1}

    def test_parts_share_the_numbers_of_the_whole(self) -> None:
        known = order()
        known.track(batch(-1, count=3))
        known.track(whole := batch(-1, count=5))
        parts = [batch(-1, count=2), batch(-1, count=3)]
        known.split(whole, parts)
        assert [part.base_sequence for part in parts] == [3, 5]
        assert known.tracked[1:] == parts
