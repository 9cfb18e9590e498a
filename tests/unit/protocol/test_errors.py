"""Error codes, beside what a client library knows of them."""

from __future__ import annotations

from typing import Any

import kafka.errors
import pytest

from headrace.protocol.errors import ErrorCode, KafkaError


def broker_errors() -> list[Any]:
    kinds = [kind for kind in vars(kafka.errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, kafka.errors.BrokerResponseError)]


THEIRS: dict[int, Any] = {kind.errno: kind for kind in broker_errors() if kind.errno is not None}


# what kafka-python still calls them
OLD_NAMES = {
    "NO_ERROR": "NONE",
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}


def test_codes_have_no_holes() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_every_code_says_something_of_its_own() -> None:
    assert len({code.text for code in ErrorCode}) == len(ErrorCode)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code in THEIRS], ids=lambda code: code.name)
def test_name_agrees_with_kafka_python(code: ErrorCode) -> None:
    told = THEIRS[code].message
    assert OLD_NAMES.get(told, told) == code.name


def test_refusal_carries_its_code() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == ErrorCode.INVALID_CONFIG.text
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms")) == "retention.ms"
