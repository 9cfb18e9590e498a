"""The sending half of a connection: answers leave in order, and nothing is held that can wait in its file.

A span of a file is read when the socket has room, a piece at a time: inline where the page cache has it,
else in a thread, while the answers behind it wait. Whatever stops a connection is a hold; while there is
any, nothing is read from the socket, so that TCP slows the client down.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, cast

from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.server.disk import RealFile
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.server.driver import Driver
    from headrace.server.gate import Gate

# How much of a file is read at a time: what a slow reader can make us hold.
CHUNK_BYTES = 1024 * 1024

# Parts are copied into one piece up to here: cheaper than telling the kernel of several.
JOINED_BYTES_MAX = 16 * 1024

# Why a connection is not read from. Bits, since several may hold at once and the hot path asks for any.
WRITING = 1  # its answers fill the socket's buffer
UNSENT = 2  # answers wait for a file's bytes, or behind such
FULL = 4  # too many requests without an answer
MUTED = 8  # throttled by the node
MEMORY = 16  # a big frame waits for memory
TURN = 32  # others have their turn
STOPPING = 64  # the process takes no new requests
CLOSED = 128
UNSENDABLE = UNSENT | CLOSED


class Outbox(asyncio.BufferedProtocol):
    __slots__ = (
        "_closes_when_sent",
        "_driver",
        "_gate",
        "_holds",
        "_is_paused",
        "_is_reading_file",
        "_transport",
        "_unsent",
        "active_at",
        "connection",
    )

    def __init__(self, gate: "Gate", driver: "Driver", connection: Connection) -> None:
        self._gate = gate
        self._driver = driver
        self.connection = connection
        self._transport: asyncio.Transport
        self._holds = 0
        self._is_paused = False  # as the transport was told
        self._unsent: deque[bytes | bytearray | memoryview | Span] = deque()  # its spans' files are pinned
        self._is_reading_file = False
        self._closes_when_sent = False
        self.active_at = 0.0  # when bytes last moved, in or out

    # --- holds ------------------------------------------------------------------------------------------

    def hold(self, reason: int) -> None:
        """Handle nothing more from this connection until the reason is released."""
        self._holds |= reason
        if not self._is_paused and not self._holds & CLOSED:
            self._is_paused = True
            self._transport.pause_reading()

    def release(self, reason: int) -> None:
        if self._holds & reason:
            self._holds &= ~reason
            if not self._holds:
                self._driver.soon(self._go_on)  # never at once: we may be inside a call of the node

    def _go_on(self) -> None:
        """Nothing holds the connection any more: handle what has arrived, then read again."""
        raise AssertionError("the reading half says how")

    def pause_writing(self) -> None:
        self.hold(WRITING)

    def resume_writing(self) -> None:
        self.active_at = monotonic()
        self.release(WRITING)
        if self._unsent:
            self._send_unsent()

    def close(self, reason: str) -> None:
        """End it now; what was not sent is dropped."""
        if not self._holds & CLOSED:
            self._holds |= CLOSED
            address = self.connection.address
            self._gate.log.sometimes(
                self.active_at, "info", "connection_closed", address=address, reason=reason
            )
            self._transport.abort()

    def stop_taking(self) -> None:
        """Handle no more requests; those that were handled are still answered."""
        self.hold(STOPPING)

    def close_when_sent(self) -> None:
        """End it as soon as the answers that are known have left."""
        if not self._holds & CLOSED:
            if self._unsent:
                self._closes_when_sent = True
            else:
                self._holds |= CLOSED
                self._transport.close()

    def _forget_unsent(self) -> None:
        for part in self._unsent:
            if type(part) is Span:
                part.file.close()
        self._unsent.clear()

    # --- answers ----------------------------------------------------------------------------------------

    def send(self, parts: Parts) -> None:
        """A whole frame, after those before it."""
        if self._holds & UNSENDABLE:
            if not self._holds & CLOSED:
                self._unsent.extend(_pinned(part) for part in parts)
            return
        size = 0
        for part in parts:
            if type(part) is Span:
                self._send_with_spans(parts)
                return
            size += len(part)  # type: ignore[arg-type]  # not a Span
        self._gate.bytes_out += size
        if len(parts) == 1:
            self._transport.write(parts[0])  # type: ignore[arg-type]
        elif size <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(parts))  # type: ignore[arg-type]
        else:
            self._transport.writelines(parts)  # type: ignore[arg-type]

    def _send_with_spans(self, parts: Parts) -> None:
        """What is at hand, at once; what the disk does not have at hand is awaited, with all behind it."""
        ready: list[bytes | bytearray | memoryview] = []
        size = 0
        for index, part in enumerate(parts):
            if type(part) is Span:
                data = None
                if size + part.size <= CHUNK_BYTES:
                    data = self._read_now(part, part.size)
                if data is None:
                    self._unsent.extend(_pinned(part) for part in parts[index:])
                    break
                ready.append(memoryview(data))
                size += len(data)
            else:
                ready.append(part)  # type: ignore[arg-type]  # not a Span
                size += len(part)  # type: ignore[arg-type]
        self._gate.bytes_out += size
        if ready and not self._holds & CLOSED:
            self._transport.writelines(ready)
        if self._unsent:
            self.hold(UNSENT)
            self._send_unsent()

    def _send_unsent(self) -> None:
        """Go on, a piece of a file at a time, until the socket has enough or the disk must be awaited."""
        unsent = self._unsent
        while unsent and not self._is_reading_file and not self._holds & (WRITING | CLOSED):
            part = unsent[0]
            if type(part) is Span:
                size = min(part.size, CHUNK_BYTES)
                data = self._read_now(part, size)
                if data is None:
                    if not self._holds & CLOSED:
                        self._is_reading_file = True
                        self._driver.read_in_thread(part.file, part.position, size, self._file_was_read)
                    return
                self._sent_piece(part, data)
            else:
                unsent.popleft()
                self._gate.bytes_out += len(part)  # type: ignore[arg-type]
                self._transport.write(part)  # type: ignore[arg-type]  # not a Span
        if not unsent:
            self.release(UNSENT)
            if self._closes_when_sent:
                self.close_when_sent()

    def _sent_piece(self, span: Span, data: bytes | bytearray) -> None:
        if span.size == len(data):
            self._unsent.popleft()
            span.file.close()
        else:
            span.position += len(data)
            span.size -= len(data)
        self._gate.bytes_out += len(data)
        self._transport.write(memoryview(data))  # of a view the loop keeps the rest without copying it

    def _file_was_read(self, data: bytes | OSError) -> None:
        self._is_reading_file = False
        if self._holds & CLOSED:
            return
        span = cast(Span, self._unsent[0])
        if isinstance(data, OSError) or len(data) != min(span.size, CHUNK_BYTES):
            self._unreadable(span, data if isinstance(data, OSError) else None)
            return
        self.active_at = monotonic()
        self._sent_piece(span, data)
        self._send_unsent()

    def _read_now(self, span: Span, size: int) -> bytes | bytearray | None:
        """The bytes if at hand. A file that cannot be read ends the connection: its frame has begun."""
        file = span.file
        data: bytes | bytearray | None
        try:
            if type(file) is RealFile:
                data = file.try_read_now(span.position, size)
            else:
                data = file.read(span.position, size)
        except OSError as error:
            self._unreadable(span, error)
            return None
        if data is not None and len(data) != size:
            self._unreadable(span, None)
            return None
        return data

    def _unreadable(self, span: Span, error: OSError | None) -> None:
        self._gate.log.error(
            "unreadable_file", path=span.file.path, position=span.position, error=error or "cut short"
        )
        self.close("a file could not be read")


def _pinned(part: bytes | bytearray | memoryview | Span) -> bytes | bytearray | memoryview | Span:
    """Spans that wait get a descriptor of their own: the log may close or delete the file meanwhile."""
    if type(part) is not Span:
        return part
    if type(part.file) is RealFile:
        return Span(part.file.pin(), part.position, part.size)
    return part.read()  # memory, not a disk: nothing to wait for
