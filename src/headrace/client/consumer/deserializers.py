"""Deserializers of keys and values, and the error of a record that they cannot read.

A record that cannot be read does not end the consumer: what came before it is handed out, and then the error
names the record and holds it as it is. The position stays in front of it until the application seeks.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.client.serializers import Serializer, Undecodable, serializer_for
from headrace.records._messages import Message

Deserializer = Serializer[Any] | Callable[[bytes], Any] | type


class UndecodableRecord(Undecodable):
    """A record's key or value is not what the deserializer reads; `message` has both as bytes.

    >>> from headrace import Consumer, UndecodableRecord
    >>> with Consumer(servers, value_deserializer=lambda data: int(data)) as consumer:
    ...     consumer.assign({("numbers", 0): 0})
    ...     try:
    ...         consumer.poll(10)
    ...     except UndecodableRecord as error:
    ...         print(error.at, error.offset, error.part, error.message.value)
    ...         consumer.seek(error.at, error.offset + 1)
    numbers-0 0 value b'not a number'
    """

    advice = "seek() past it, or read it as bytes: the error has the raw message."

    def __init__(self, message: Message, part: str, cause: Undecodable) -> None:
        self.message = message
        self.part = part  # "key" or "value"
        self.at = TopicPartition(message.topic, message.partition)
        self.offset: int = message.offset
        super().__init__(f"the {part} at offset {self.offset} of partition {self.at}: {cause}", cause.data)


def as_serializer(given: Deserializer | None, name: str) -> Serializer[Any] | None:
    """From what `name` may be: a Serializer, a type with a ready one, or a function of bytes."""
    if given is None or isinstance(given, Serializer):
        return given
    if isinstance(given, type):
        return serializer_for(given)
    if callable(given):
        return Serializer(_unwritable, given)
    raise InvalidInput(f"{name} is a {type(given).__name__}, and neither function, type nor Serializer")


def _unwritable(value: Any) -> bytes:
    raise TypeError("a consumer's deserializer does not write")


class Deserializers(NamedTuple):
    key: Serializer[Any] | None
    value: Serializer[Any] | None

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def apply(self, messages: Sequence[Message]) -> tuple[int, UndecodableRecord | None]:
        """How many could be read, in place, and what is wrong with the next one."""
        for count, message in enumerate(messages):
            key, value = message.key, message.value
            part = "key"
            try:
                if self.key is not None:
                    key = self.key.from_bytes(key)
                part = "value"
                if self.value is not None:
                    value = self.value.from_bytes(value)
            except Undecodable as error:
                return count, UndecodableRecord(message, part, error)
            message.key, message.value = key, value
        return len(messages), None
