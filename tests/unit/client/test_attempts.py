"""Retries: what is tried again, how long to wait, and what is told in the end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.time import Instant
from headrace.client.attempts import RETRY_FIRST_S, RETRY_LAST_S, Attempts, backoff
from headrace.client.errors import InvalidInput, KafkaError, Unreachable


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers())
def test_waits_double_up_to_the_last_and_stay_within_a_fifth(attempt: int, seed: int) -> None:
    expected = min(RETRY_LAST_S, RETRY_FIRST_S * 2 ** min(attempt, 60))
    assert 0.8 * expected <= backoff(attempt, random.Random(seed)) <= 1.2 * expected


def test_a_retriable_error_is_waited_out(dice: random.Random) -> None:
    attempts = Attempts("asking", Instant(100.0), dice)
    first = attempts.failed(Instant(10.0), Unreachable("a"))
    second = attempts.failed(Instant(20.0), Unreachable("b"))
    assert 10.0 < first < 10.1
    assert 20.0 < second < 20.2
    assert attempts.failures == 2


def test_a_hopeless_error_is_raised_at_once(dice: random.Random) -> None:
    error = InvalidInput("no")
    with pytest.raises(InvalidInput):
        Attempts("asking", Instant(100.0), dice).failed(Instant(0.0), error)


def test_when_time_is_up_the_last_error_is_told_not_the_clock(dice: random.Random) -> None:
    attempts = Attempts("asking", Instant(1.0), dice)
    with pytest.raises(Unreachable, match="refused"):
        attempts.failed(Instant(0.999), Unreachable("refused"))


def test_errors_know_kafkas_name_and_whether_retrying_helps() -> None:
    moved = KafkaError(6, subject="partition orders-0")
    assert (moved.name, moved.code, moved.is_retriable) == ("NOT_LEADER_OR_FOLLOWER", 6, True)
    assert str(moved).startswith("partition orders-0: ")
    assert "(NOT_LEADER_OR_FOLLOWER)" in str(moved)
    assert moved.is_metadata_stale
    taken = KafkaError(36, "Topic 'a' already exists.")
    assert (taken.name, taken.is_retriable) == ("TOPIC_ALREADY_EXISTS", False)
    assert "Topic 'a' already exists." in str(taken)
    assert taken.advice


def test_a_code_from_the_future_is_told_and_not_retried() -> None:
    unknown = KafkaError(9999)
    assert (unknown.name, unknown.is_retriable) == ("ERROR_9999", False)
