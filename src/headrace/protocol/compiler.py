"""Codecs: the encode and decode functions of one message type in one version, compiled when first used.

`codec(ProduceRequest, 9).decode(frame, position)` gives a message, `.encode(message)` bytes, and
`.encode_parts(message)` a list in which every `records` value stands untouched as its own part.
`.decode_steps(frame, position)` is a generator that pauses now and then, and returns the message.

A codec in columns differs in arrays of flat structs: each is a tuple of lists (`protocol/columns.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from headrace.protocol._flat_structs import read_columns, write_columns
from headrace.protocol.columns import read_in_steps
from headrace.protocol.decoder import Decoder
from headrace.protocol.encoder import Encoder
from headrace.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from headrace.protocol.notation import ZERO_UUID, Message, Request, Response
from headrace.protocol.parts import BUFFERS, Part, part_size
from headrace.protocol.varint import (
    ONE_BYTE,
    decode_long_varint,
    decode_varint,
    encode_varint,
    skip_tags,
)

M = TypeVar("M", bound=Message)
API_VERSIONS_KEY = 18


def _uuid(value: bytes) -> bytes:
    """`struct` would cut or pad a wrong length silently."""
    if len(value) != 16:
        raise UnencodableMessage(f"a uuid has 16 bytes, not {len(value)}")
    return value


_RUNTIME: dict[str, Any] = {
    "BUFFERS": BUFFERS,
    "Malformed": MalformedMessage,
    "ONE_BYTE": ONE_BYTE,
    "Unencodable": UnencodableMessage,
    "ZERO_UUID": ZERO_UUID,
    "columns_in_steps": read_in_steps,
    "join": b"".join,
    "long_varint": decode_long_varint,
    "new": object.__new__,
    "pack": struct.pack,
    "part_size": part_size,
    "read_columns": read_columns,
    "skip_tags": skip_tags,
    "struct_error": struct.error,
    "unpack_from": struct.unpack_from,
    "uuid": _uuid,
    "write_columns": write_columns,
}


class Codec(Generic[M]):
    """The functions are slots that stay empty until somebody asks for them."""

    __slots__ = (
        "decode",
        "decode_steps",
        "encode",
        "encode_parts",
        "flexible",
        "header_version",
        "in_columns",
        "message",
        "version",
    )

    message: type[M]
    version: int
    flexible: bool
    header_version: int  # of the request or response header that goes before the body
    decode: Callable[..., M]  # (buffer, position=0, trailing=...): whether bytes may be left over
    decode_steps: Callable[..., Generator[None, None, M]]  # the same, with pauses
    encode: Callable[[M], bytes]
    encode_parts: Callable[[M], list[Part]]

    def __init__(self, message: type[M], version: int, *, in_columns: bool = False) -> None:
        self.message = message
        self.version = version
        self.in_columns = in_columns
        self.flexible = version in message.FLEXIBLE
        self.header_version = _header_version(message, flexible=self.flexible)

    def __getattr__(self, name: str) -> Any:
        """Fills an empty slot."""
        if name not in ("decode", "decode_steps", "encode", "encode_parts"):
            raise AttributeError(name)
        scope = dict(_RUNTIME)
        exec(  # nosec B102  # source of our own, from declared messages
            compile(self.source(name, scope), f"<{self.message.__name__} v{self.version} {name}>", "exec"),
            scope,
        )
        setattr(self, name, scope[name])
        return scope[name]

    def source(self, name: str, scope: dict[str, Any]) -> str:
        """The Python source of one of the functions; puts the constants that it needs into `scope`."""
        if name in ("decode", "decode_steps"):
            scope["varint"] = decode_varint
            return Decoder(
                self.message,
                self.version,
                scope,
                in_steps=name == "decode_steps",
                in_columns=self.in_columns,
            ).source
        scope["varint"] = encode_varint
        return Encoder(
            self.message,
            self.version,
            scope,
            in_parts=name == "encode_parts",
            in_columns=self.in_columns,
        ).source

    def __repr__(self) -> str:
        return f"Codec({self.message.__name__}, {self.version})"


def _header_version(message: type[Message], *, flexible: bool) -> int:
    if issubclass(message, Request):
        return 2 if flexible else 1
    # The ApiVersions answer is read before the client knows what the broker speaks: its header never changed.
    return 1 if flexible and issubclass(message, Response) and message.KEY != API_VERSIONS_KEY else 0


_codecs: dict[tuple[type[Message], int, bool], Codec[Any]] = {}


def codec(message: type[M], version: int, *, in_columns: bool = False) -> Codec[M]:
    """The codec of a message type in one version; UnsupportedVersion if the type does not have it."""
    try:
        return _codecs[message, version, in_columns]
    except KeyError:
        if version not in message.VERSIONS:
            raise UnsupportedVersion(message.KEY, version) from None
        made = _codecs[message, version, in_columns] = Codec(message, version, in_columns=in_columns)
        return made
