"""Why the accumulator rejects a record, and the error that `send` raises because of it.

Some reasons pass: the topic's metadata arrives, or a delivery frees buffer memory. `send` waits for that,
until `max.block.ms` is over. For the others, and when the time is over, `error_of` gives the error to raise.
"""

from typing import TYPE_CHECKING

from headrace.client.errors import (
    BufferExhausted,
    ClientError,
    InvalidInput,
    KafkaError,
    TimedOut,
    Unreachable,
)
from headrace.client.serializers import NotSerializable
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:  # it knows the accumulator, which imports this file
    from headrace.client.producer.topics import Topics


class RecordRejected(Exception):
    """The accumulator does not take the record; nothing has changed."""


class BufferFull(RecordRejected):
    """No buffer memory until something else is delivered; `size` is what the record needs."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class MetadataMissing(RecordRejected):
    """The topic's partitions are not known yet."""


class UnknownPartition(RecordRejected):
    """The topic has no such partition, as far as is known."""


class RecordTooLarge(RecordRejected):
    """Larger than a request or the whole buffer may be: it can never be sent."""


class Unwritable(RecordRejected):
    """A key or a value that is neither bytes nor text."""


class BadTimestamp(RecordRejected, ValueError):
    """Before 1970, or beyond what a record can say."""


class NotOpen(RecordRejected):
    """The producer takes no records now: it is closed, or outside a transaction."""


class TopicUnknown(TimedOut):
    """No broker described the topic within `max.block.ms`."""

    advice = "Check the topic's name; create the topic, or let the broker do so (auto.create.topics.enable)."


def unanswered(topic: str, cause: ClientError) -> Unreachable:
    """The error when no broker could be asked about a topic; its name may be right."""
    error = Unreachable(f"topic {topic!r} could not be looked up: {cause}")
    error.advice = cause.advice
    error.__cause__ = cause
    return error


def error_of(
    reason: RecordRejected, topic: str, topics: "Topics", *, is_late: bool, outage: ClientError | None = None
) -> ClientError | None:
    """The error to raise; None if waiting may help.

    `is_late`: `max.block.ms` is over. `outage`: no broker can be reached.
    """
    error: ClientError | None = None
    match reason:
        case MetadataMissing():
            topics.want(topic)
            error = topics.refusal(topic)
            if error is None and is_late:
                cause = topics.error_of(topic)
                if outage is not None:
                    return outage
                if cause is not None and not isinstance(cause, KafkaError):
                    return unanswered(topic, cause)
                error = TopicUnknown(f"topic {topic!r} is not known yet" + (f": {cause}" if cause else ""))
                error.__cause__ = cause
        case BufferFull():
            if is_late:
                error = BufferExhausted(f"buffer.memory is full: {reason}")
                if outage is not None:
                    error = BufferExhausted(f"buffer.memory is full: {reason}; {outage}")
                    error.advice = outage.advice
                    error.__cause__ = outage
        case RecordTooLarge():
            error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(reason), subject=f"topic {topic!r}")
            error.advice = (
                "Send smaller records, or raise max.request.size and max.message.bytes of the topic."
            )
        case Unwritable():
            error = NotSerializable(str(reason))
            error.advice = "Give the producer a value_serializer or key_serializer, or send bytes."
        case _:
            error = InvalidInput(str(reason))
    return error
