"""Random TLS handshakes: a ClientHello that was good, mutated from a seed and cut into pieces, and the check
that it passes. A case is the pieces, each behind its size.

The listener's TLS layer is real; the socket below it and the connection above it are here. Whatever comes,
the handshake waits for more, or fails with a reason: nobody is let in, and no exception leaves the layer.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from pathlib import Path
from typing import Any, cast

from harness.certificates import Authority
from harness.mutated_frames import mutated
from headrace.node.connection import Connection
from headrace.node.listener_security import tls_settings
from headrace.server.tls import TlsTransport
from headrace.server.tls_listener import TlsListener
from headrace.server.tls_refusals import HELLO_BEGINS, refusal_of_hello

PIECES_MAX = 3


def hello() -> bytes:
    """What a client of OpenSSL says first."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


HELLO = hello()


def pieces(rng: random.Random) -> bytes:
    data = mutated(HELLO, rng) if rng.randrange(10) else HELLO
    if not rng.randrange(4):  # something behind it: a record of any kind
        more = bytes([rng.choice((20, 21, 22, 23, 24, rng.randrange(256))), 3, rng.randrange(5)])
        data += more + struct.pack(">H", rng.choice((0, 1, 40, 16_640, 65_535))) + rng.randbytes(40)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(PIECES_MAX)))
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)])]
    return b"".join(struct.pack(">H", len(part)) + part for part in parts)


class Loop:
    """Calls that are due at the end of a turn are made when the case asks for it."""

    def __init__(self) -> None:
        self.soon: list[tuple[Any, tuple[Any, ...]]] = []

    def call_soon(self, call: Any, *arguments: Any) -> None:
        self.soon.append((call, arguments))

    def call_later(self, delay_s: float, call: Any) -> Loop:
        return self

    def cancel(self) -> None:
        pass

    def turn(self) -> None:
        while self.soon:
            call, arguments = self.soon.pop(0)
            call(*arguments)


class Counts:
    """What the listener counts."""

    handshakes_failed = 0


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False
        self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def fileno(self) -> int:
        return -1  # to write there at once fails: everything is written here

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Above:
    """The connection that TLS would carry."""

    def __init__(self) -> None:
        self.connection = Connection(1, listener="TLS", address="127.0.0.1")
        self.reasons: list[str] = []
        self.is_reached = False
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(1024))

    def buffer_updated(self, count: int) -> None:
        self.is_reached = True

    def shown_certificate(self, principal: str) -> None:
        self.is_reached = True

    def refused_handshake(self, reason: str) -> None:
        pass

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def close(self, reason: str) -> None:
        self.reasons.append(reason)
        self.transport.abort()


class HelloCases:
    """One listener for all cases."""

    def __init__(self, directory: Path, **settings: str) -> None:
        texts = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(Authority(directory).issue("broker").both),
        } | {key.replace("_", "."): value for key, value in settings.items()}
        self.loop = Loop()
        self.counts = Counts()
        loop, counts = cast(Any, self.loop), cast(Any, self.counts)
        self.listener = TlsListener(loop, tls_settings(texts, "TLS"), counts)
        self.answered = 0  # hellos that the broker liked

    def check(self, data: bytes) -> None:
        above, below = Above(), Socket()
        transport = TlsTransport(self.listener, above)
        transport.connection_made(below)
        failed = self.counts.handshakes_failed
        position, everything = 0, b""
        while position + 2 <= len(data):
            (size,) = struct.unpack_from(">H", data, position)
            piece = data[position + 2 : position + 2 + size]
            position += 2 + size
            everything += piece
            while piece and not below.is_closed:
                buffer = transport.get_buffer(-1)
                count = min(len(buffer), len(piece))
                buffer[:count] = piece[:count]
                piece = piece[count:]
                transport.buffer_updated(count)
                self.loop.turn()
        assert below.is_closed == self._is_wrong(everything)
        if not below.is_closed:
            self.answered += below.sent[:1] == b"\x16"
            transport.eof_received()
            self.loop.turn()
        assert not above.is_reached
        assert below.is_closed
        (reason,) = above.reasons
        assert reason.startswith("TLS handshake failed: ")
        assert len(reason) < 200
        assert self.counts.handshakes_failed == failed + 1
        transport.connection_lost(None)

    def _is_wrong(self, data: bytes) -> bool:
        """Whether it is refused by its first bytes, or by OpenSSL, and nobody waits for more."""
        if not data or len(data) < HELLO_BEGINS or refusal_of_hello(data[:HELLO_BEGINS]) is not None:
            return bool(data) and refusal_of_hello(data[:HELLO_BEGINS]) is not None
        incoming = ssl.MemoryBIO()
        incoming.write(data)
        tls = self.listener.context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True
        raise AssertionError("a client is in with its first message")
