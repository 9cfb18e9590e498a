"""Serializers: pairs of functions from values of Python to bytes and back.

    orders = Serializer(serialize=Order.to_bytes, deserialize=Order.from_bytes)

Ready ones: `TEXT`, `BYTES`, `JSON`, and `dataclass_json`, `msgspec_json`, `msgspec_messagepack` and
`pydantic_json` for a type; `serializer_for` chooses one by the type. A null stays a null: neither function is
ever called with None.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.base.extras import require
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    import pydantic

T = TypeVar("T")


class NotSerializable(ClientError):
    """A value cannot be written as bytes; the record was not sent."""

    advice = "Send a value of the type that the serializer was made for."


class Undecodable(ClientError):
    """A record's bytes are not what the serializer reads; they are in `data`."""

    advice = "Look at the record as bytes; whoever wrote it used another serializer."

    def __init__(self, message: str, data: bytes) -> None:
        super().__init__(message)
        self.data = data


@dataclass(slots=True, frozen=True)
class Serializer(Generic[T]):
    """How values become bytes, and bytes values again; neither function is ever given None.

    >>> numbers = headrace.Serializer(lambda value: b"%d" % value, int)
    >>> numbers.to_bytes(42), numbers.from_bytes(b"42"), numbers.to_bytes(None)
    (b'42', 42, None)
    """

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]

    def to_bytes(self, value: T | None) -> bytes | None:
        """With None as null; whatever goes wrong is a NotSerializable."""
        if value is None:
            return None
        try:
            return self.serialize(value)
        except NotSerializable:
            raise
        except Exception as error:
            raise NotSerializable(f"{type(value).__name__} cannot be serialized: {error}") from error

    def from_bytes(self, data: bytes | None) -> T | None:
        """With null as None; whatever goes wrong is an Undecodable."""
        if data is None:
            return None
        try:
            return self.deserialize(data)
        except Exception as error:
            raise Undecodable(f"{len(data)} bytes cannot be read: {error}", data) from error


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
    """JSON of anything that msgspec knows: its Structs, dataclasses, attrs classes, plain types.

    >>> headrace.msgspec_json(dict[str, int]).to_bytes({"tea": 2})
    b'{"tea":2}'
    """
    require("msgspec", "msgspec_json()")
    import msgspec

    return Serializer(msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode)


def msgspec_messagepack(kind: type[T]) -> Serializer[T]:
    """The same as MessagePack: smaller, and not for people to read.

    >>> headrace.msgspec_messagepack(dict[str, int]).to_bytes({"tea": 2})
    b'\\x81\\xa3tea\\x02'
    """
    require("msgspec", "msgspec_messagepack()")
    import msgspec

    return Serializer(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode)


def pydantic_json(model: "type[pydantic.BaseModel]") -> Serializer[Any]:
    """JSON of a pydantic model, validated on the way in.

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
    """By the type alone: text, bytes, JSON for dict and list, and models by their library.

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
    raise TypeError(
        f"there is no ready serializer for {kind}; make one as Serializer(serialize, deserialize)"
    )


def _is_subclass(kind: type, module: str, name: str) -> bool:
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(kind, base)
