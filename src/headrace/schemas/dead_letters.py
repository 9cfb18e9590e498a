"""A record that nobody could use, kept so that it can be understood, and sent through again after the fix.

Key and value are the original's, byte for byte, and so are its headers; what happened stands beside them in
headers of our own, as texts. The original's place makes each dead letter traceable, and the count of attempts
keeps a record that never gets better from going round for ever.
"""

from collections.abc import Sequence
from typing import NamedTuple

PREFIX = "headrace.dead_letter."
REASON = PREFIX + "reason"
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
TIMESTAMP = PREFIX + "timestamp"
ATTEMPT = PREFIX + "attempt"

# A reason may quote the record; more of it helps nobody.
REASON_CHARACTERS_MAX = 1_000

Headers = Sequence[tuple[str, bytes | None]]


class NotADeadLetter(ValueError):
    """A record without our headers, or with nonsense in them."""


class DeadLetter(NamedTuple):
    reason: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()  # of the original, without ours
    attempt: int = 1  # how often it failed

    def record_headers(self) -> list[tuple[str, bytes | None]]:
        """All headers of the record in the dead-letter topic."""
        facts = {
            REASON: self.reason[:REASON_CHARACTERS_MAX],
            TOPIC: self.topic,
            PARTITION: str(self.partition),
            OFFSET: str(self.offset),
            TIMESTAMP: str(self.timestamp_ms),
            ATTEMPT: str(self.attempt),
        }
        return [*self.headers, *((name, text.encode()) for name, text in facts.items())]

    def redriven_headers(self) -> list[tuple[str, bytes | None]]:
        """Of the record that goes back to its topic: the original's, and how often it failed so far."""
        return [*self.headers, (ATTEMPT, str(self.attempt).encode())]


def dead_letter(
    reason: str,
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> DeadLetter:
    """The dead letter of a record that failed. If it was redriven before, this is one attempt more."""
    return DeadLetter(
        reason,
        topic,
        partition,
        offset,
        timestamp_ms,
        key,
        value,
        tuple(_foreign(headers)),
        attempts(headers) + 1,
    )


def attempts(headers: Headers) -> int:
    """How often a record failed before it came here: 0 unless it was redriven."""
    for name, value in headers:
        if name == ATTEMPT and value is not None and value.isdigit():
            return int(value)
    return 0


def read_dead_letter(key: bytes | None, value: bytes | None, headers: Headers) -> DeadLetter:
    """From a record of a dead-letter topic. NotADeadLetter if it is none."""
    facts = {name: data.decode("utf-8", "replace") for name, data in headers if data is not None}
    try:
        return DeadLetter(
            facts[REASON],
            facts[TOPIC],
            int(facts[PARTITION]),
            int(facts[OFFSET]),
            int(facts[TIMESTAMP]),
            key,
            value,
            tuple(_foreign(headers)),
            int(facts[ATTEMPT]),
        )
    except KeyError as error:
        raise NotADeadLetter(f"it has no header {error.args[0]}") from error
    except ValueError as error:
        raise NotADeadLetter(f"its headers are not understood: {error}") from error


def _foreign(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]
