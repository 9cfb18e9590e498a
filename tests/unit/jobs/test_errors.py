"""Which failures of a run are retried."""

from __future__ import annotations

import pytest

from headrace.client.errors import KafkaError, PartlyFailed, ProducerUnusable, Unreachable
from headrace.jobs.errors import Fault, JobFailed, WrongJobs, fault_of
from headrace.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("error", "is_retriable"),
    [
        (JobFailed("no", "advice"), False),
        (JobFailed("no", is_retriable=True), True),
        (WrongJobs("no"), False),
        (Unreachable("away"), True),
        (ProducerUnusable("fenced"), True),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), True),
        (KafkaError(ErrorCode.INVALID_CONFIG), False),
        (PartlyFailed({"a": KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}, {}), True),
        (ValueError("a schema that does not fit"), False),
        (ImportError("no deltalake"), False),
        (OSError(28, "No space left on device"), True),
        (RuntimeError("a bug"), True),
    ],
)
def test_faults(error: Exception, is_retriable: bool) -> None:
    assert fault_of(error).is_retriable is is_retriable


def test_a_fault_has_message_and_advice() -> None:
    assert fault_of(JobFailed("no", "try yes")) == Fault("no", "try yes", False)
    assert fault_of(Unreachable("away")).advice == Unreachable.advice
    assert fault_of(KeyError("x")).message == "KeyError: 'x'"
