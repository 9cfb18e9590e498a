"""What to do about a record that the accumulator does not take: wait and try again, or raise.

The shell's `send` tries, asks here, and waits for the next answer of a broker until `max.block.ms` is over.
"""

from headrace.client.errors import (
    BufferExhausted,
    ClientError,
    InvalidInput,
    KafkaError,
    TimedOut,
    Unreachable,
)
from headrace.client.producing.topics import Topics
from headrace.client.serializers import NotSerializable
from headrace.protocol.errors import ErrorCode
from headrace.records.errors import BufferFull, NotTaken, RecordTooLarge, UnknownTopic, Unwritable


class TopicUnknown(TimedOut):
    """Nothing could be learned of the topic in `max.block.ms`."""

    advice = "Check the topic's name; create the topic, or let the broker do so (auto.create.topics.enable)."


def unanswered(topic: str, cause: ClientError) -> Unreachable:
    """The error when no broker could be asked about a topic; its name may be right."""
    error = Unreachable(f"topic {topic!r} could not be looked up: {cause}")
    error.advice = cause.advice
    error.__cause__ = cause
    return error


def hopeless(
    reason: NotTaken, topic: str, topics: Topics, *, is_late: bool, outage: ClientError | None = None
) -> ClientError | None:
    """The error to raise; None: waiting may help. `is_late`: `max.block.ms` is over. `outage`: no broker can
    be reached.
    """
    error: ClientError | None = None
    match reason:
        case UnknownTopic():
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
                error = BufferExhausted(f"no room for another record: {reason}")
                if outage is not None:
                    error = BufferExhausted(f"no room for another record: {reason}; {outage}")
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
