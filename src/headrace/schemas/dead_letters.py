"""Dead letters: records that could not be processed, stored so that they can be sent again after a fix.

Key, value and headers are those of the original record, byte for byte. Additional headers have the reason and
the original topic, partition and offset. They also count the attempts, so that a record that fails every time
is not sent for ever.
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
    """A record without the headers of a dead letter, or with invalid ones."""


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
        """Headers of the record that goes back to its topic: the original ones, and the number of
        attempts.
        """
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
    """The dead letter of a record that failed. If the record was redriven, its count of attempts rises."""
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
    """How often a record has failed before: 0 unless it was redriven."""
    for name, value in headers:
        if name == ATTEMPT and value is not None and value.isdigit():
            return int(value)
    return 0


def read_dead_letter(key: bytes | None, value: bytes | None, headers: Headers) -> DeadLetter:
    """Reads a record of a dead-letter topic; raises NotADeadLetter if it is not one."""
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
        raise NotADeadLetter(f"the record has no header {error.args[0]}") from error
    except ValueError as error:
        raise NotADeadLetter(f"the headers of the dead letter are invalid: {error}") from error


def _foreign(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]
