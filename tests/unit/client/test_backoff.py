"""Retries: how long to wait, and what errors say of themselves."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.backoff import RETRY_FIRST_S, RETRY_LAST_S, backoff
from headrace.client.errors import KafkaError


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers())
def test_waits_double_up_to_the_last_and_stay_within_a_fifth(attempt: int, seed: int) -> None:
    expected = min(RETRY_LAST_S, RETRY_FIRST_S * 2 ** min(attempt, 60))
    assert 0.8 * expected <= backoff(attempt, random.Random(seed)) <= 1.2 * expected


def test_errors_know_kafkas_name_and_whether_retrying_helps() -> None:
    moved = KafkaError(6, subject="partition orders-0")
    assert (moved.name, moved.code, moved.is_retriable) == ("NOT_LEADER_OR_FOLLOWER", 6, True)
    assert str(moved).startswith("partition orders-0: ")
    assert "(NOT_LEADER_OR_FOLLOWER)" in str(moved)
    assert moved.is_metadata_stale
    taken = KafkaError(36, "Topic 'a' already exists.")
    assert (taken.name, taken.is_retriable) == ("TOPIC_ALREADY_EXISTS", False)
    assert "Topic 'a' already exists (TOPIC_ALREADY_EXISTS)" in str(taken)
    assert taken.advice


def test_a_code_from_the_future_is_told_and_not_retried() -> None:
    unknown = KafkaError(9999)
    assert (unknown.name, unknown.is_retriable) == ("ERROR_9999", False)
