"""Parts of an answer: most are bytes, some are data in files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Sized(Protocol):
    """A part that is not in memory yet, such as a span of a file: the codec needs only its length."""

    @property
    def size(self) -> int: ...


Part = bytes | bytearray | memoryview | Sized
Records = Part | list[Part]  # the value of a `records` field; a list where it spans several files

BUFFERS = frozenset((bytes, bytearray, memoryview))


def part_size(part: Any) -> int:
    """The bytes that a part, or a list of parts, puts on the wire."""
    kind = type(part)
    if kind in BUFFERS:
        return len(part)
    if kind is list:
        return total_size(part)
    size: int = part.size
    return size


def total_size(parts: Iterable[Part]) -> int:
    return sum(map(part_size, parts))
