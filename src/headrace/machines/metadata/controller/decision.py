"""Decision of the controller: the records of a change, and the reply for when they are durable.

A decision only reads the image. The owner of the log appends the records, replays them at once, and sends the
reply when they are flushed. `Refusal` is the error of one item of a request, with Kafka's error code.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.base.limits import MESSAGE_CHARACTERS_MAX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Data

R = TypeVar("R")

# Whether the client may create or delete so many partitions more: `controller_mutation_rate`.
Admits = Callable[[int], bool]

# Kafka's limit for the records of a request about security, and what it says then.
RECORDS_MAX = 10_000
TOO_LARGE = "Unable to perform excessively large batch operation."


@dataclass(slots=True)
class MetadataDecision(Generic[R]):
    reply: R
    records: list[Data] = field(default_factory=list)
    # partitions whose new leader may lack acknowledged records: an operator has to know
    unclean_elections: list[str] = field(default_factory=list)


def admit_all(partitions: int) -> bool:
    """For changes that no client asks for."""
    return True


class Refusal(Exception):
    """One item of a request is refused, with the error code and the message for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        if len(message) > MESSAGE_CHARACTERS_MAX:
            message = message[:MESSAGE_CHARACTERS_MAX] + "…"
        super().__init__(message)
        self.code = code
        self.message = message


class QuotaExceeded(Refusal):
    """The code says it all: as in Kafka, the client gets no message with it."""


def check_admitted(partitions: int, admits: Admits) -> None:
    """Refuses a change of so many partitions if the quota of the client is used up."""
    if not admits(partitions):
        raise QuotaExceeded(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "its quota of partition changes is used up")
