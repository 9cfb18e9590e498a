"""What a serializer is, and what can be wrong with a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.client.errors import ClientError

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
