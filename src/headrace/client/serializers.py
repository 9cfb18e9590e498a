"""Serializers and deserializers: functions from values of Python to bytes and back.

    orders = Serializer(serialize=Order.to_bytes, deserialize=Order.from_bytes)

Ready ones: `TEXT`, `BYTES`, `JSON`, and `dataclass_json`, `msgspec_json`, `msgspec_messagepack` and
`pydantic_json` for a type; `serializer_for` chooses one by the type. A null stays a null: neither function is
ever called with None.

A record that a consumer cannot read does not end it: what came before it is handed out, and then the error
names the record and holds it as it is. The position stays in front of it until the application seeks.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from headrace.base.extras import require
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, InvalidInput
from headrace.records._messages import Message

if TYPE_CHECKING:
    import pydantic


T = TypeVar("T")


class NotSerializable(ClientError):
    """A value cannot be written as bytes; the record was not sent."""

    advice = "Send a value of the type that the serializer was made for."


class SerializerUnusable(ClientError):
    """A serializer lacks something that it needs, such as its schema registry; no record is the cause."""


class Undecodable(ClientError):
    """A record's bytes are not what the serializer reads; they are in `data`."""

    advice = "Read the record as bytes; it was probably written with another serializer."

    def __init__(self, message: str, data: bytes) -> None:
        super().__init__(message)
        self.data = data


@dataclass(slots=True, frozen=True)
class Serializer(Generic[T]):
    """A pair of functions, from values to bytes and back; neither is ever called with None.

    >>> numbers = headrace.Serializer(lambda value: b"%d" % value, int)
    >>> numbers.to_bytes(42), numbers.from_bytes(b"42"), numbers.to_bytes(None)
    (b'42', 42, None)
    """

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def to_bytes(self, value: T | None) -> bytes | None:
        """The bytes of a value; None for None. Raises NotSerializable for any error of the value."""
        if value is None:
            return None
        try:
            return self.serialize(value)
        except (NotSerializable, SerializerUnusable):
            raise
        except Exception as error:
            raise NotSerializable(f"{type(value).__name__} cannot be serialized: {error}") from error

    def from_bytes(self, data: bytes | None) -> T | None:
        """The value of bytes; None for None. Raises Undecodable for any error of the bytes."""
        if data is None:
            return None
        try:
            return self.deserialize(data)
        except SerializerUnusable:
            raise
        except Exception as error:
            raise Undecodable(f"{len(data)} bytes cannot be decoded: {error}", data) from error


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    # bytes(5) would be five zeros
    if not isinstance(value, bytes | bytearray | memoryview):
        raise NotSerializable(f"{type(value).__name__} is not bytes")
    return bytes(value)


def _text(value: str) -> bytes:
    if not isinstance(value, str):
        raise NotSerializable(f"{type(value).__name__} is not text")
    return value.encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


BYTES: Final[Serializer[bytes]] = Serializer(_bytes, bytes)
TEXT: Final[Serializer[str]] = Serializer(_text, bytes.decode)
JSON: Final[Serializer[Any]] = Serializer(_json, json.loads)


def msgspec_json(kind: type[T]) -> Serializer[T]:
    """JSON of the types that msgspec supports: its Structs, dataclasses, attrs classes, plain types.

    >>> headrace.msgspec_json(dict[str, int]).to_bytes({"tea": 2})
    b'{"tea":2}'
    """
    require("msgspec", "msgspec_json()")
    import msgspec

    return Serializer(msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode)


def msgspec_messagepack(kind: type[T]) -> Serializer[T]:
    """MessagePack of the same types: smaller than JSON, and not readable for people.

    >>> headrace.msgspec_messagepack(dict[str, int]).to_bytes({"tea": 2})
    b'\\x81\\xa3tea\\x02'
    """
    require("msgspec", "msgspec_messagepack()")
    import msgspec

    return Serializer(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode)


def pydantic_json(model: "type[pydantic.BaseModel]") -> Serializer[Any]:
    """JSON of a pydantic model, validated when it is read.

    >>> import pydantic
    >>> Order = pydantic.create_model("Order", item=(str, ...), count=(int, ...))
    >>> orders = headrace.pydantic_json(Order)
    >>> orders.to_bytes(Order(item="tea", count=2)), orders.from_bytes(b'{"item":"tea","count":"2"}')
    (b'{"item":"tea","count":2}', Order(item='tea', count=2))
    """

    def serialize(value: "pydantic.BaseModel") -> bytes:
        text: str = value.model_dump_json()
        return text.encode()

    return Serializer(serialize, model.model_validate_json)


def serializer_for(kind: Any) -> Serializer[Any]:
    """The serializer for a type: text, bytes, JSON for dict and list, and models by their library.

    >>> headrace.serializer_for(dict).to_bytes({"item": "tea"})
    b'{"item":"tea"}'
    """
    if kind is str:
        return TEXT
    if kind is bytes:
        return BYTES
    if kind in (dict, list) or kind is Any:
        return JSON
    if isinstance(kind, type):
        # whoever has such a class has loaded its library
        if _is_subclass(kind, "msgspec", "Struct"):
            return msgspec_json(kind)
        if _is_subclass(kind, "pydantic", "BaseModel"):
            return pydantic_json(kind)
        if dataclasses.is_dataclass(kind):
            from headrace.client.dataclass_serializer import dataclass_json  # it needs `Serializer` from here

            return dataclass_json(kind)
    raise TypeError(f"no built-in serializer for {kind}; create one with Serializer(serialize, deserialize)")


def _is_subclass(kind: type, module: str, name: str) -> bool:
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)


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
    raise InvalidInput(f"{name} is a {type(given).__name__}: must be a function, a type or a Serializer")


def _unwritable(value: Any) -> bytes:
    raise TypeError("this deserializer of a consumer cannot serialize")


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
