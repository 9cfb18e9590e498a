"""Answers with data from files: they leave in order, and a file is read only when its bytes can be sent.

A span of a file is read when the socket has space, a piece at a time: directly if the page cache has it, else
in a thread, while the answers behind it wait. `connection.py` sends the answers that are in memory.

A socket takes some megabytes even if its client never reads, and copying them takes milliseconds. So there is
one piece in a turn of the loop, and pieces are short until the client has shown that it reads. Before each of
them the thread gives up the processor: the kernel often wakes the client that was answered last on the
processor of who answered it, and would let it wait there until the next tick of the clock.
"""

from collections import deque
from collections.abc import Iterable
from os import sched_yield
from typing import TYPE_CHECKING, cast

from headrace.node.effects import Parts
from headrace.server.disk import RealFile
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.server.connection import Channel
    from headrace.server.connection_limits import Connections
    from headrace.server.driver import Driver

Part = bytes | bytearray | memoryview | Span

# How much of a file that is not in the page cache is read at a time, in a thread: what a slow reader can make
# us hold, and enough that a disk with its read-ahead is busy.
COLD_READ_BYTES = 1024 * 1024

# The first piece of a connection. The next one is twice as long if the socket has taken all of it.
FIRST_PIECE_BYTES = 256 * 1024

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


class Outbox:
    """Answers of one connection that contain data from files, and the answers that wait behind them."""

    __slots__ = (
        "_channel",
        "_connections",
        "_driver",
        "_is_closed",
        "_is_due",
        "_piece_bytes",
        "_unsent",
        "closes_when_sent",
        "is_reading_file",
    )

    def __init__(self, channel: "Channel", connections: "Connections", driver: "Driver") -> None:
        self._channel = channel
        self._connections = connections
        self._driver = driver
        self._unsent: deque[Part] = deque()  # its spans' files are pins, which close themselves
        self._is_closed = False
        self._is_due = False  # it goes on in the loop's next turn
        self._piece_bytes = FIRST_PIECE_BYTES
        self.is_reading_file = False
        self.closes_when_sent = False

    @property
    def is_empty(self) -> bool:
        return not self._unsent

    def close(self) -> None:
        """The connection is gone. It is forgotten, too: the collector runs too rarely for a cycle of the
        two.
        """
        self._is_closed = True
        self._unsent.clear()
        del self._channel

    def add(self, parts: Iterable[Part]) -> None:
        """Behind what waits already."""
        try:
            self._unsent.extend(_pinned(part) for part in parts)
        except OSError as error:
            self._cannot_read(error)

    def send(self, parts: Parts) -> None:
        """Sends at once what the page cache has; the rest waits for the disk, with the answers behind it."""
        rest = deque(parts)
        is_next = self._send_from(rest)
        if rest and not self._channel.holds & CLOSED:
            self.add(rest)
            self._channel.hold(UNSENT)
            if is_next:
                self._go_on_soon()
            else:
                self.go_on()

    def drained(self) -> None:
        """The socket has taken what it could not take before."""
        self._grow()
        if self._unsent:
            self.go_on()

    def go_on(self) -> None:
        """Go on where the socket, or the disk, had to be awaited."""
        unsent = self._unsent
        if self.is_reading_file or self._is_due:
            return
        if self._send_from(unsent):
            self._go_on_soon()
        elif not unsent:
            self._channel.release(UNSENT)
            if self.closes_when_sent:
                self._channel.close_when_sent()
        elif not self._channel.holds & (WRITING | CLOSED) and not self._channel.transport.is_closing():
            span = unsent[0]
            assert type(span) is Span  # nothing else is ever waited for
            size = min(span.size, COLD_READ_BYTES)
            try:
                self._driver.read_in_thread(span.file, span.position, size, self._file_was_read)
            except OSError as error:
                self._cannot_read(error)
            else:
                self.is_reading_file = True

    def _go_on_soon(self) -> None:
        self._is_due = True
        self._driver.soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_due = False
        if not self._is_closed:
            self.go_on()

    def _grow(self) -> None:
        self._piece_bytes = min(2 * self._piece_bytes, len(self._connections.piece))

    def _file_was_read(self, data: bytes | OSError) -> None:
        self.is_reading_file = False
        if self._is_closed or self._channel.holds & CLOSED:
            return
        span = cast(Span, self._unsent[0])
        if isinstance(data, OSError) or len(data) != min(span.size, COLD_READ_BYTES):
            self._unreadable(span, data if isinstance(data, OSError) else None)
            return
        self._channel.active_at = self._connections.clock.now().mono
        _cut(self._unsent, len(data))
        self._connections.bytes_out += len(data)
        self._channel.transport.write(
            memoryview(data)
        )  # of a view the loop keeps the rest without copying it
        self.go_on()

    def _send_from(self, parts: "deque[Part]") -> bool:
        """Sends a piece of what the page cache has, if the socket takes it, by way of the memory that all
        connections share. True: the rest has to wait for nothing but the loop's next turn.
        """
        connections, channel = self._connections, self._channel
        transport = channel.transport
        # one that is lost takes everything, and says so in the loop's next turn
        while parts and not channel.holds & (WRITING | CLOSED) and not transport.is_closing():
            piece = connections.piece[: self._piece_bytes]
            sched_yield()
            used = self._fill(piece, parts)
            if used:
                connections.piece_idle_sweeps = 0
                connections.bytes_out += used
                transport.write(piece[:used])
                if not transport.get_write_buffer_size():
                    self._grow()
                elif not channel.is_encrypted:
                    connections.new_piece()  # the transport keeps a view of this one until it is sent
                if parts and used == len(piece):
                    return not channel.holds & (WRITING | CLOSED)
            elif parts and type(parts[0]) is not Span:
                part = cast(bytes, parts.popleft())  # too big to be worth a copy
                connections.bytes_out += len(part)
                transport.write(part)
            else:
                break  # not in the page cache, or not readable at all
        return False

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

    def _cannot_read(self, error: OSError) -> None:
        """No descriptor or thread is free. The frame has begun: nothing else may follow."""
        self._channel.close(f"a file cannot be read for it: {error}")

    def _unreadable(self, span: Span, error: Exception | None) -> None:
        self._connections.log.sometimes(
            self._channel.active_at,
            "error",
            "unreadable_file",
            path=span.file.path,
            position=span.position,
            error=error or "cut short",
        )
        self._channel.close("a file could not be read")


def _cut(parts: "deque[Part]", size: int) -> None:
    """Removes the first bytes of the first part, a span, because they were sent."""
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
