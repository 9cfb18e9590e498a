"""The sending half of a connection: answers leave in order, and nothing is held that can wait in its file.

A span of a file is read when the socket has room, a piece at a time: inline where the page cache has it,
else in a thread, while the answers behind it wait. Whatever stops a connection is a hold; while there is
any, nothing is read from the socket, so that TCP slows the client down.
"""

import asyncio
from collections import deque
from os import write
from typing import TYPE_CHECKING, cast

from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.server.disk import RealFile
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.server.driver import Driver
    from headrace.server.gate import Gate

Part = bytes | bytearray | memoryview | Span

# How much of a file that is not in the page cache is read at a time, in a thread: what a slow reader can make
# us hold, and enough that a disk with its read-ahead is busy.
COLD_READ_BYTES = 1024 * 1024

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
        "_descriptor",
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
        self._descriptor = -1  # of its socket, unless what is written to that has to be encrypted
        self._holds = 0
        self._is_paused = False  # as the transport was told
        self._unsent: deque[Part] = deque()  # its spans' files are pins, which close themselves
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
        self._gate.note_unsent(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.active_at = self._gate.clock.now().mono
        self._gate.note_unsent(self, 0)
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
        if size <= JOINED_BYTES_MAX:
            self._send_at_once(parts[0] if len(parts) == 1 else b"".join(parts))  # type: ignore[arg-type]
        else:
            self._transport.writelines(parts)  # type: ignore[arg-type]
        if self._holds & WRITING:  # a later answer to one that does not take the earlier ones
            self._gate.note_unsent(self, self._transport.get_write_buffer_size())

    def _send_at_once(self, data: bytes) -> None:
        """Without the loop where the socket has room: the loop gathers, and writes after it has read from
        everybody, while the client could go on already.
        """
        if self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            try:
                sent = write(self._descriptor, data)
            except OSError:
                sent = 0  # no room, or nobody there: the loop finds out as well
            if sent == len(data):
                return
            data = data[sent:]
        self._transport.write(data)

    def _send_with_spans(self, parts: Parts) -> None:
        """What is at hand, at once; what the disk does not have at hand is awaited, with all behind it."""
        rest = deque(parts)
        self._send_from(rest)
        if rest and not self._holds & CLOSED:
            self._unsent.extend(_pinned(part) for part in rest)
            self.hold(UNSENT)
            self._send_unsent()

    def _send_unsent(self) -> None:
        """Go on where the socket, or the disk, had to be awaited."""
        unsent = self._unsent
        if self._is_reading_file:
            return
        self._send_from(unsent)
        if not unsent:
            self.release(UNSENT)
            if self._closes_when_sent:
                self.close_when_sent()
        elif not self._holds & (WRITING | CLOSED):
            span = unsent[0]
            assert type(span) is Span  # nothing else is ever waited for
            self._is_reading_file = True
            size = min(span.size, COLD_READ_BYTES)
            self._driver.read_in_thread(span.file, span.position, size, self._file_was_read)

    def _file_was_read(self, data: bytes | OSError) -> None:
        self._is_reading_file = False
        if self._holds & CLOSED:
            return
        span = cast(Span, self._unsent[0])
        if isinstance(data, OSError) or len(data) != min(span.size, COLD_READ_BYTES):
            self._unreadable(span, data if isinstance(data, OSError) else None)
            return
        self.active_at = self._gate.clock.now().mono
        _cut(self._unsent, len(data))
        self._gate.bytes_out += len(data)
        self._transport.write(memoryview(data))  # of a view the loop keeps the rest without copying it
        self._send_unsent()

    def _send_from(self, parts: "deque[Part]") -> None:
        """Send as much as the socket takes and the page cache has, by way of the gate's one piece
        of memory.
        """
        gate, transport = self._gate, self._transport
        while parts and not self._holds & (WRITING | CLOSED):
            piece = gate.piece
            used = self._fill(piece, parts)
            if used:
                gate.bytes_out += used
                transport.write(piece[:used])
                if transport.get_write_buffer_size():
                    gate.new_piece()  # the transport keeps a view of this one until the socket takes more
            elif parts and type(parts[0]) is not Span:
                part = cast(bytes, parts.popleft())  # too big to be worth a copy
                gate.bytes_out += len(part)
                transport.write(part)
            else:
                return  # not in the page cache, or not readable at all

    def _fill(self, piece: memoryview, parts: "deque[Part]") -> int:
        """Put the parts one behind the other until the piece is full or one is not at hand; how
        many bytes.
        """
        used = 0
        while parts:
            part = parts[0]
            room = len(piece) - used
            if type(part) is Span:
                size = min(part.size, room)
                if size and not self._read_into(part, piece[used : used + size]):
                    break
                used += size
                _cut(parts, size)
                if size == room:
                    break
            else:
                size = len(part)  # type: ignore[arg-type]  # not a Span
                if size > room or size > JOINED_BYTES_MAX:
                    break
                piece[used : used + size] = part  # type: ignore[assignment]
                used += size
                parts.popleft()
        return used

    def _read_into(self, span: Span, view: memoryview) -> bool:
        """Whether the bytes were at hand. A file that cannot be read ends the connection: its frame
        has begun.
        """
        file = span.file
        try:
            if type(file) is RealFile:
                return file.try_read_into(span.position, view)
            view[:] = file.read(span.position, len(view))
        except (OSError, ValueError) as error:  # ValueError: it is shorter than the view
            self._unreadable(span, error)
            return False
        return True

    def _unreadable(self, span: Span, error: Exception | None) -> None:
        self._gate.log.sometimes(
            self.active_at,
            "error",
            "unreadable_file",
            path=span.file.path,
            position=span.position,
            error=error or "cut short",
        )
        self.close("a file could not be read")


def _cut(parts: "deque[Part]", size: int) -> None:
    """The first part is a span, of which that many bytes are done."""
    span = cast(Span, parts[0])
    if size == span.size:
        parts.popleft()
    else:  # a new one: the node may hold on to its own
        parts[0] = Span(span.file, span.position + size, span.size - size)


def _pinned(part: "Part") -> "Part":
    """Spans that wait get a descriptor of their own: the log may close or delete the file meanwhile."""
    if type(part) is not Span:
        return part
    if type(part.file) is RealFile:
        return Span(part.file.pin(), part.position, part.size)
    return part.read()  # memory, not a disk: nothing to wait for
