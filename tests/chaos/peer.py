"""A peer that says whatever it likes: raw frames over a socket, and what the broker makes of them.

Well-formed requests are encoded with the broker's own codecs; everything hostile is put together byte by
byte, so that a mistake shared by both sides cannot hide.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_response_header

PATIENCE_S = 60.0  # far beyond anything that works; only a broken broker lets it run out


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, *, tags: bytes = b"") -> bytes:
    """A request header with a null client id; flexible ones need `tags`, b"\\0" for none."""
    return struct.pack(">hhih", api_key, version, 7, -1) + tags


def text(value: bytes | str) -> bytes:
    """A string as old versions write it."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">h", len(data)) + data


def compact(value: bytes | str) -> bytes:
    """A string as flexible versions write it."""
    data = value.encode() if isinstance(value, str) else value
    return uvarint(len(data) + 1) + data


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encoded(request: Any, version: int) -> bytes:
    """A well-formed request as a frame."""
    codec = request_codec(type(request).KEY, version)
    tags = b"\0" if codec.flexible else b""
    return frame(header(type(request).KEY, version, tags=tags) + codec.encode(request))


class Peer:
    """One connection to the broker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends all of it; that the broker hangs up half-way is in order here and shows in the answer."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def shut_down(self) -> None:
        """Says that nothing more will come; the broker may have gone first."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def answer(self) -> bytes | None:
        """The next frame without its size, or None when the broker closed the connection instead."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(struct.unpack(">i", head)[0])
        except ConnectionResetError:
            return None

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            some = self.socket.recv(min(count - len(data), 1 << 20))
            if not some:
                return None
            data += some
        return bytes(data)

    def ask(self, request: Any, version: int) -> Any:
        """Sends a well-formed request; the decoded response, or None when the connection was closed."""
        self.send(encoded(request, version))
        return self.decoded(type(request).KEY, version)

    def decoded(self, api_key: int, version: int) -> Any:
        data = self.answer()
        if data is None:
            return None
        codec = response_codec(api_key, version)
        correlation_id, position = decode_response_header(data, codec.header_version)
        assert correlation_id == 7
        return codec.decode(data, position)
