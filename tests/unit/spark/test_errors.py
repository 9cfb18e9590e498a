"""Errors of a client as Spark shows them: short, and with the right that is missing."""

from __future__ import annotations

import traceback

import pytest

from headrace.client.errors import AuthenticationFailed, ClientError, KafkaError, PartlyFailed
from headrace.protocol.errors import ErrorCode
from headrace.spark.errors import READING, WRITING, MissingRight, without_frames

NO_TOPIC = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, subject="topic 'a'")
NO_SINK = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, subject="sink 's'")


def deep(error, levels=20):
    if levels:
        deep(error, levels - 1)
    raise error


def work(error, needs):
    try:
        deep(error)
    except ClientError as caught:
        raise without_frames(caught, needs) from None


def raised_from(error, needs):
    with pytest.raises((ClientError, MissingRight)) as raised:
        work(error, needs)
    return raised.value


def test_a_missing_right_is_named():
    for error, needs, right in (
        (NO_TOPIC, READING, "READ on the topic"),
        (NO_TOPIC, WRITING, "WRITE on the topic"),
        (NO_SINK, WRITING, "WRITE on the transactional id"),
        (PartlyFailed({"a": NO_TOPIC, "b": NO_TOPIC}, {}), READING, "READ on the topic"),
    ):
        found = raised_from(error, needs)
        assert isinstance(found, MissingRight)
        assert str(error) in str(found)
        assert right in str(found)


def test_other_errors_stay_what_they_are_without_the_clients_frames():
    refused = AuthenticationFailed("the broker refused user a")
    refused.add_note("a note")
    found = raised_from(refused, READING)
    assert found is refused
    text = "".join(traceback.format_exception(found))
    assert "deep" not in text
    assert text.endswith("the broker refused user a\na note\n")
