"""What a decider answers: the records that make a change true, and the reply once they are durable.

A decider only reads the image. Whoever owns the log appends the records, replays them at once, and lets the
reply leave when they are flushed. What cannot be done is a `Refusal`, told per item with Kafka's error code.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.base.limits import MESSAGE_CHARACTERS_MAX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Data

R = TypeVar("R")


@dataclass(slots=True)
class Decision(Generic[R]):
    reply: R
    records: list[Data] = field(default_factory=list)


class Refusal(Exception):
    """One item of a request that cannot be granted, with the code and the words its sender gets."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        if len(message) > MESSAGE_CHARACTERS_MAX:
            message = message[:MESSAGE_CHARACTERS_MAX] + "…"
        super().__init__(message)
        self.code = code
        self.message = message
