"""What to do about a record that the accumulator does not take: wait and try again, or raise.

The shell's `send` tries, asks here, and waits for the next answer of a broker until `max.block.ms` is over.
"""

from headrace.client.errors import BufferExhausted, ClientError, InvalidInput, KafkaError, TimedOut
from headrace.client.producing.topics import Topics
from headrace.client.serializers.serializer import NotSerializable
from headrace.protocol.errors import ErrorCode
from headrace.records.errors import BufferFull, NotTaken, RecordTooLarge, UnknownTopic, Unwritable


class TopicUnknown(TimedOut):
    """Nothing could be learned of the topic in `max.block.ms`."""

    advice = "Check the name; create the topic (`headrace topic create`), or let the broker do so."


def hopeless(reason: NotTaken, topic: str, topics: Topics, *, is_late: bool) -> ClientError | None:
    """The error to raise; None: waiting may help. `is_late`: `max.block.ms` is over."""
    error: ClientError | None = None
    match reason:
        case UnknownTopic():
            topics.want(topic)
            error = topics.refusal(topic)
            if error is None and is_late:
                cause = topics.error_of(topic)
                error = TopicUnknown(f"topic {topic!r} is not known yet" + (f": {cause}" if cause else ""))
                error.__cause__ = cause
        case BufferFull():
            if is_late:
                error = BufferExhausted(f"no room for another record: {reason}")
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
