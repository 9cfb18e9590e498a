"""Encoding of messages with a long list, piece by piece.

The pieces together are the same bytes as the message encoded at once.
"""

from collections.abc import Generator, Iterable
from itertools import islice
from struct import Struct
from typing import Any

from headrace.protocol.compiler import Codec
from headrace.protocol.parts import Part
from headrace.protocol.varint import encode_varint

# Elements that may be encoded together: their count has to fit one byte, in old versions the last of four,
# since that byte tells where in the message they are.
TOGETHER_MAX = 100

_COUNT = Struct(">i")


class ChunkedMessage:
    """A message whose long list is encoded already, piece by piece; the rest of it is not."""

    __slots__ = ("_at", "_codec", "_count", "_elements", "_field", "_message")

    def __init__(self, codec: Codec[Any], message: Any, field: str) -> None:
        """`message` has an empty list in that field."""
        self._codec = codec
        self._message = message
        self._field = field
        self._at = 0  # where the count of elements is, in the encoded message
        self._count = 0
        self._elements: list[bytes] = []

    @property
    def throttle_time_ms(self) -> int:
        return int(self._message.throttle_time_ms)

    @throttle_time_ms.setter
    def throttle_time_ms(self, value: int) -> None:
        self._message.throttle_time_ms = value

    def add(self, items: list[Any]) -> None:
        """At least one, at most TOGETHER_MAX."""
        empty = self._codec.encode(self._message)
        setattr(self._message, self._field, items)
        full = self._codec.encode(self._message)
        setattr(self._message, self._field, [])
        if not self._count:
            self._at = next(
                at for at, (one, other) in enumerate(zip(empty, full, strict=False)) if one != other
            )
            self._at -= 0 if self._codec.flexible else 3
        before = self._at + self._count_bytes
        self._elements.append(full[before : len(full) - len(empty) + before])
        self._count += len(items)

    def encoded(self) -> list[Part]:
        """The whole message."""
        empty = self._codec.encode(self._message)
        if not self._count:
            return [empty]
        count = encode_varint(self._count + 1) if self._codec.flexible else _COUNT.pack(self._count)
        return [empty[: self._at] + count, *self._elements, empty[self._at + self._count_bytes :]]

    @property
    def _count_bytes(self) -> int:
        return 1 if self._codec.flexible else 4


def encode_in_chunks(
    codec: Codec[Any], message: Any, field: str, items: Iterable[Any], *, together: int
) -> Generator[None, None, ChunkedMessage]:
    """The message with all items in that field. It yields after each piece, of so many items together."""
    chunked = ChunkedMessage(codec, message, field)
    rest = iter(items)
    while some := list(islice(rest, together)):
        chunked.add(some)
        yield
    return chunked
