"""Messages behind an int16 version: control records, the consumer protocol, coordinators' keys and values."""

from __future__ import annotations

from typing import TypeVar

from headrace.protocol.compiler import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.notation import Message

M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """The version, then the body in that version."""
    return version.to_bytes(2, "big", signed=True) + codec(type(message), version).encode(message)


def version_of(buffer: bytes | memoryview) -> int:
    """The version that stands before the body."""
    if len(buffer) < 2:
        raise MalformedMessage("the message ends before its version")
    return int.from_bytes(buffer[:2], "big", signed=True)


def decode_versioned(kind: type[M], buffer: bytes | memoryview, *, newer: bool = False) -> M:
    """Reads the version and then the body; UnsupportedVersion if `kind` does not have it.

    With `newer`, a version above the highest known one is read as that one and what it appended is ignored:
    members of a group upgrade one by one, and their protocol only ever grows at the end.
    """
    version = version_of(buffer)
    if newer:
        return codec(kind, min(version, kind.VERSIONS.last)).decode(buffer, 2, True)
    return codec(kind, version).decode(buffer, 2)
