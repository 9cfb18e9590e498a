"""Text, bytes and JSON."""

import json
from typing import Any, Final

from headrace.client.serializers.serializer import NotSerializable, Serializer


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
