"""A client's connection: from bytes to frames for the node, and answers back to the client.

Frames are handled in the receive buffer, one after the other, as plain calls. No view of the buffer is kept
after the node's `handle` returns: the rest of a read is copied into a buffer of the connection, because all
connections share the receive buffer. There is one exception: a large batch may stay in the connection's own
buffer until it is written (`Connection.kept_frames`). Meanwhile the connection is full, nothing is read from
it, and nothing in the buffer is moved or given back. A reason to stop reading from the connection is a hold;
while there is one, nothing is read from the socket, so that TCP slows the client down. `outbox.py` sends what
is in files.
"""

import asyncio
import socket
import struct
from os import write
from time import monotonic
from typing import TYPE_CHECKING, cast

from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX, UNSENT_BYTES_PER_CONNECTION_MAX
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.server.connection_limits import SHARED_BUFFER_BYTES, describe_bad_size, refusal_of_long_frame
from headrace.server.outbox import (
    CLOSED,
    FULL,
    JOINED_BYTES_MAX,
    MEMORY,
    MUTED,
    STOPPING,
    TURN,
    UNSENDABLE,
    WRITING,
    Outbox,
)
from headrace.server.receive_buffer import ReceiveBuffer
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.server.connection_limits import Connections
    from headrace.server.core_listener import Core
    from headrace.server.driver import Driver
    from headrace.server.gathered_answers import GatheredAnswers
    from headrace.server.tls import EncryptedAnswers

# API key, version and correlation id: what every request begins with.
FRAME_BYTES_MIN = 8

# What a frame may take of the memory for requests grows as its bytes arrive, so that a lying length costs its
# sender about as much as it costs us: at most this many times what has come, but so much at once.
GROWTH = 4
TRUSTED_BYTES = 64 * 1024
# A connection's first buffer. It is not counted against the memory for requests: thousands may have one.
SMALL_BUFFER_BYTES = 16 * 1024
# Bigger ones have room beyond the frame, so that the next frame's head is read along.
BUFFER_STEP_BYTES = 64 * 1024

# So much is received at a time: memory that is used for the first time costs a millisecond for every 1.5 MB.
RECEIVED_BYTES_MAX = 512 * 1024

# After so long without a break the other connections have their turn; the clock is read every few frames.
TURN_S_MAX = 0.002
FRAMES_BETWEEN_CLOCKS = 16

# Answers to the frames of one read leave together, up to so many parts; a big one leaves at once.
TOGETHER_PARTS_MAX = 128
BIG_PART_BYTES = 4 * 1024

# Linux tells in which state a connection is: these two come after the other side's end of it.
TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8
GONE_STATES = (TCP_CLOSE, TCP_CLOSE_WAIT)

_size_at = struct.Struct(">i").unpack_from


class Channel(asyncio.BufferedProtocol):
    decrypts = False  # what its transport receives are frames

    __slots__ = (
        "_buffer",
        "_connections",
        "_descriptor",
        "_driver",
        "_end",
        "_frame_began_at",
        "_gathered",
        "_handle",
        "_is_paused",
        "_mute_timer",
        "_now",
        "_rearm",
        "_start",
        "_take_effects",
        "_taken",
        "_turn_began_at",
        "active_at",
        "connection",
        "holds",
        "is_encrypted",
        "outbox",
        "transport",
    )

    def __init__(self, connections: "Connections", driver: "Driver", listener: str) -> None:
        self._connections = connections
        self._driver = driver
        self.connection = Connection(driver.next_connection_id(), listener=listener, address="")
        self.outbox = Outbox(self, connections, driver)
        self.transport: asyncio.Transport
        self._descriptor = -1  # of its socket, unless what is written to that has to be encrypted
        self.is_encrypted = False  # its transport keeps no view of what is written
        self.holds = 0
        self._is_paused = False  # as the transport was told
        self.active_at = 0.0  # when bytes last moved, in or out
        self._handle = driver.handle
        self._take_effects = driver.node.take_effects
        self._rearm = driver.rearm
        self._now = connections.clock.now
        self._gathered: GatheredAnswers | Core | EncryptedAnswers = connections.gathered
        self._buffer: ReceiveBuffer | None = None  # our own; None: read into the shared one
        self._start = 0  # of what is not handled yet, in our own buffer
        self._end = 0
        self._taken = 0  # of the memory for requests
        self._turn_began_at = (
            0.0  # when the first of reads began that follow each other without a break; 0: none
        )
        self._mute_timer: asyncio.TimerHandle | None = None
        self._frame_began_at = 0.0  # when the frame that is not complete yet began; 0: none

    # --- asyncio's calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.connection.address = peer[0] if peer else ""
        now = self._connections.clock.now()
        self.active_at = now.mono
        its_socket = transport.get_extra_info("socket")
        refusal = self._connections.admit(self, its_socket.fileno())
        if refusal is not None:
            self.holds |= CLOSED
            self._connections.log.sometimes(
                now.mono, "warning", "connection_refused", address=self.connection.address, reason=refusal
            )
            self.transport.abort()
            return
        its_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        core = getattr(transport, "gathered", None)
        self.is_encrypted = transport.get_extra_info("sslcontext") is not None
        if core is not None:  # the compiled one sends all that its connections gather
            self._gathered = core
        elif not self.is_encrypted:
            self._descriptor = its_socket.fileno()
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES_PER_CONNECTION_MAX)
        self._driver.connected(now, self.connection)
        if self.holds:
            self._driver.soon(self._pause_again)

    def _pause_again(self) -> None:
        """uvloop begins to read after `connection_made`, also if that has paused it. What has come by now is
        kept.
        """
        if self._is_paused and not self.holds & CLOSED:
            self.transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.holds |= CLOSED
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._drop_buffer()
        self._connections.memory.forget(self)
        self._gathered.forget(self)
        self.outbox.close()
        if self.connection.id in self._connections.channels:
            self._connections.leave(self)
            self._driver.disconnected(self._connections.clock.now(), self.connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer
        if buffer is None:
            return self._connections.shared_view
        end = self._end
        return buffer.view[end : min(buffer.granted, end + RECEIVED_BYTES_MAX)]

    def buffer_updated(self, count: int) -> None:
        connections = self._connections
        connections.bytes_in += count
        buffer = self._buffer
        if buffer is None:
            is_full = count == SHARED_BUFFER_BYTES
            self._frames(connections.shared_view, 0, count)
        else:
            is_full = count == RECEIVED_BYTES_MAX or self._end + count == buffer.granted
            self._frames(buffer.view, self._start, self._end + count)
        if is_full:
            self._share_turn()
        elif self._turn_began_at:
            self._turn_began_at = 0.0

    def _share_turn(self) -> None:
        """A read that filled its buffer is followed by the next one at once, up to 32 times in libuv: a fast
        sender would keep all others waiting.
        """
        if not self._turn_began_at:
            self._turn_began_at = self.active_at
        elif monotonic() - self._turn_began_at > TURN_S_MAX and not self.holds:
            self.hold(TURN)
            self._driver.soon(self._take_turn)

    def eof_received(self) -> bool:
        self._gathered.send_of(self)  # a client may end its side and still read
        return False

    # --- frames -----------------------------------------------------------------------------------------

    def _frames(self, view: memoryview, start: int, end: int) -> None:
        """Hand all whole frames in view[start:end] to the node, and keep the rest."""
        now = self._now()
        self.active_at = began = now.mono
        if self.holds:  # a new connection that is to wait, see `_pause_again`
            if not self.holds & CLOSED:
                self._keep_rest(view, start, end, None)
            return
        handle, take_effects, connection = self._handle, self._take_effects, self.connection
        answers: Parts = []  # small ones are sent together: a system call costs more than making one
        fault = ""
        count = 0
        while end - start >= 4:
            (size,) = _size_at(view, start)
            stop = start + 4 + size
            if size < FRAME_BYTES_MIN or size > self._connections.limits.frame_bytes_max:
                self._connections.frames_refused += 1
                fault = describe_bad_size(
                    bytes(view[start : start + 4]), size, self._connections.limits.frame_bytes_max
                )
                break
            if stop > end:
                if size > FRAME_WITHOUT_RECORDS_BYTES_MAX and end - start >= 4 + FRAME_BYTES_MIN:
                    fault = refusal_of_long_frame(view, start + 4, size)
                    self._connections.frames_refused += bool(fault)
                break
            try:
                parts = handle(now, connection, view[start + 4 : stop])
            except Exception as error:
                self._driver.failed("handle", error)
                self._driver.soon(self._driver.wake)  # what the call had begun is owed to others
                fault = "internal error"
                break
            start = stop
            if parts is not None:
                if start == end and not answers:
                    self.send(parts)  # the only frame of its read, as most are
                else:
                    answers.extend(parts)
                    if len(answers) > TOGETHER_PARTS_MAX or _is_big(parts[-1]):
                        self.send(answers)
                        answers = []
            elif connection.is_full:
                self.hold(FULL)
            effects = take_effects()
            if effects:
                if answers:  # an effect may be a later answer of this same connection
                    self.send(answers)
                    answers = []
                self._driver.carry_out(effects)
            count += 1
            if start == end or self.holds:
                break
            if count % FRAMES_BETWEEN_CLOCKS == 0 and monotonic() - began > TURN_S_MAX:
                self.hold(TURN)
                self._driver.soon(self._take_turn)
                break
        if answers:
            self.send(answers)
        if fault:
            self.close(fault)
        if connection.meters is not None:
            connection.meters.spent(monotonic() - began, now)
        self._rearm()
        if start == end:
            self._start = self._end = 0
            self._frame_began_at = 0.0
            if self._buffer is not None and (not self._taken or self._connections.memory.is_short):
                self._drop_buffer()
        elif not self.holds & CLOSED:
            self._keep_rest(view, start, end, None if count else self._frame_began_at)

    def keep_rest(self, view: memoryview, start: int, end: int) -> None:
        """Frames, or the beginning of one, behind those that the compiled core has handled."""
        self._keep_rest(view, start, end, None)

    def _keep_rest(self, view: memoryview, start: int, end: int, began_at: float | None) -> None:
        """Keeps the beginning of a frame, or frames that must wait; `began_at`: when that frame began."""
        self._frame_began_at = began_at or self.active_at
        if began_at is None and self._taken and self._connections.memory.is_short:
            # Others wait for memory, and a frame is done: the next one takes its turn in the queue.
            rest = memoryview(bytes(view[start:end]))
            self._drop_buffer()
            self._keep(rest, 0, len(rest))
        else:
            self._keep(view, start, end)

    def _take_turn(self) -> None:
        self._turn_began_at = 0.0
        self.release(TURN)

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Copies view[start:end] to a buffer of our own, large enough for the frame that begins there."""
        if self.connection.kept_frames and self._buffer is not None:
            self._start, self._end = start, end  # until the node has done with the frame before it
            return
        left = end - start
        size = 4 + _size_at(view, start)[0] if left >= 4 else 4
        if size - 4 > self.connection.frame_bytes_max:
            self._connections.frames_refused += 1
            self.close(
                f"frame of {size - 4} bytes before the login exceeds "
                f"sasl.server.max.receive.size={self.connection.frame_bytes_max}"
            )
            return
        needed = min(size, max(TRUSTED_BYTES, GROWTH * left))
        needed = max(needed, left + 1)  # whoever is read from has room to read into
        buffer = self._buffer
        if buffer is not None and needed <= buffer.granted:
            if start + needed > buffer.granted:
                buffer.view[:left] = view[start:end]
                start, end = 0, left
            self._start, self._end = start, end
            return
        granted = SMALL_BUFFER_BYTES
        if needed > SMALL_BUFFER_BYTES:
            granted = _stepped(needed)
            if not self._connections.memory.take(self, granted - self._taken):
                self.hold(MEMORY)
                if buffer is not None:
                    self._start, self._end = start, end
                    return
                granted = left  # what has arrived has to lie somewhere; at most the shared buffer's size
            else:
                self._taken = granted
        if buffer is not None and granted <= len(buffer.view):
            if start:
                buffer.view[:left] = view[start:end]
            buffer.granted = granted
            self._start, self._end = 0, left
            return
        self._move(view[start:end], granted, max(granted, _stepped(size)))

    def _move(self, rest: memoryview, granted: int, size: int) -> None:
        """Moves what was kept to a buffer of that size."""
        try:
            buffer = ReceiveBuffer(size, granted)
        except OSError as error:
            self.close(f"no memory for a request of {size} bytes: {error}")
            return
        buffer.view[: len(rest)] = rest
        old, self._buffer = self._buffer, buffer
        self.connection.frames_stay = True
        self._start, self._end = 0, len(rest)
        if old is not None:
            old.give_back(self._driver.soon)

    def memory_granted(self) -> None:
        self.release(MEMORY)
        if self.holds:
            self._driver.soon(self._let_others_pass)  # not at once: many of them may wait in a row

    def _let_others_pass(self) -> None:
        """Something else holds it, perhaps for long: it asks again when it goes on."""
        if self.holds and not self.holds & MEMORY:
            self._connections.memory.forget(self)

    def _drop_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        self.connection.frames_stay = False
        if buffer is not None and not self.connection.kept_frames:  # else it goes with the frame's last use
            buffer.give_back(self._driver.soon)
        self._start = self._end = 0
        taken, self._taken = self._taken, 0
        if taken:
            self._connections.memory.give_back(self, taken)

    def release_unused_buffer(self) -> None:
        if self._buffer is not None and self._start == self._end:
            self._drop_buffer()

    @property
    def awaits_rest_of_frame(self) -> bool:
        """Whether the client has sent the beginning of a frame and not the rest."""
        return self._start != self._end and not self.holds

    def is_idle_since(self, instant: float) -> bool:
        """Whether nothing has arrived since then although the client may send, or a frame takes that long."""
        if self.connection.pending or self.holds & (MEMORY | MUTED | TURN | STOPPING | CLOSED):
            return False
        if self.outbox.is_reading_file or self in self._gathered.waiting:
            return False
        return self.active_at <= instant or (self._frame_began_at != 0.0 and self._frame_began_at <= instant)

    def is_abandoned(self) -> bool:
        """Its client hung up while nothing was read from it. Otherwise its long polls would wait for nobody,
        and be asked at every append.
        """
        if not self._is_paused or self.holds & CLOSED or TCP_INFO is None:
            return False
        peer = self.transport.get_extra_info("socket")
        return peer.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)[0] in GONE_STATES

    @property
    def is_closed(self) -> bool:
        return bool(self.holds & CLOSED)

    # --- holds ------------------------------------------------------------------------------------------

    def hold(self, reason: int) -> None:
        """Handles no more requests of this connection until the reason is released."""
        self.holds |= reason
        if not self._is_paused and not self.holds & CLOSED:
            self._is_paused = True
            self.transport.pause_reading()

    def release(self, reason: int) -> None:
        if self.holds & reason:
            self.holds &= ~reason
            if not self.holds:
                self._driver.soon(self._go_on)  # never at once: we may be inside a call of the node

    def pause_writing(self) -> None:
        self.hold(WRITING)
        self._connections.note_unsent(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.active_at = self._connections.clock.now().mono
        self._connections.note_unsent(self, 0)
        self.release(WRITING)
        self.outbox.drained()

    def shown_certificate(self, principal: str) -> None:
        """The TLS handshake has ended, and the client's certificate says who it is."""
        self._driver.shown_certificate(self.connection, principal)

    def refused_handshake(self, reason: str) -> None:
        """A TLS handshake has failed in which the client should have shown a certificate."""
        self._driver.refused_handshake(self.connection, reason)

    def close(self, reason: str) -> None:
        """Closes the connection now; answers that the socket does not accept are dropped."""
        if not self.holds & CLOSED:
            self._gathered.send_of(self)
            self.holds |= CLOSED
            address = self.connection.address
            self._connections.log.sometimes(
                self.active_at, "info", "connection_closed", address=address, reason=reason
            )
            self.transport.abort()

    def stop_taking(self) -> None:
        """Handles no more requests; those that were handled are still answered."""
        self.hold(STOPPING)

    def close_when_sent(self) -> None:
        """Closes the connection as soon as the known answers were sent."""
        if not self.holds & CLOSED:
            self._gathered.send_of(self)
            if not self.outbox.is_empty:
                self.outbox.closes_when_sent = True
            else:
                self.holds |= CLOSED
                self.transport.close()

    def _go_on(self) -> None:
        """No hold is left: handles what has arrived, then reads again."""
        if self.holds or not self._is_paused:
            return
        if self._buffer is not None and self._start != self._end:
            self._frames(self._buffer.view, self._start, self._end)
        if not self.holds:
            self._is_paused = False
            self.transport.resume_reading()

    def mute(self, delay_s: float) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self.hold(MUTED)
        self._mute_timer = self._driver.later(delay_s, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self.release(MUTED)

    # --- answers ----------------------------------------------------------------------------------------

    def send(self, parts: Parts) -> None:
        """Sends a whole frame, after the frames before it."""
        if self.holds & UNSENDABLE:
            if not self.holds & CLOSED:
                self.outbox.add(parts)
            return
        size = 0
        for part in parts:
            if type(part) is Span:
                if self in self._gathered.waiting:
                    self._gathered.send_of(self)
                self.outbox.send(parts)
                return
            size += len(part)  # type: ignore[arg-type]  # not a Span
        self._connections.bytes_out += size
        if size <= JOINED_BYTES_MAX:
            data = parts[0] if len(parts) == 1 and type(parts[0]) is bytes else b"".join(parts)  # type: ignore[arg-type]
            gathered = self._gathered
            if gathered.last is not self or gathered.waiting:
                gathered.add(self, data)
            else:
                self.send_now(data)
        else:
            if self in self._gathered.waiting:
                self._gathered.send_of(self)
            self.transport.writelines(parts)  # type: ignore[arg-type]
        self._note_unsent()

    def send_now(self, data: bytes) -> None:
        """Writes to the socket at once if it has space. The event loop would write only after it has read
        from all connections, while the client could continue already.
        """
        if self._descriptor >= 0 and not self.transport.get_write_buffer_size():
            try:
                sent = write(self._descriptor, data)
            except OSError:
                sent = 0  # no room, or nobody there: the loop finds out as well
            if sent == len(data):
                return
            data = data[sent:]
        self.transport.write(data)
        self._note_unsent()

    def _note_unsent(self) -> None:
        if self.holds & WRITING:  # a later answer to one that does not take the earlier ones
            self._connections.note_unsent(self, self.transport.get_write_buffer_size())

    def answer(self, parts: Parts) -> None:
        """An answer that had to wait."""
        self.send(parts)
        self.proceed()

    def proceed(self) -> None:
        """Something of what it had asked for is done."""
        if self.holds & FULL and not self.connection.is_full:
            self.release(FULL)


def _is_big(part: bytes | bytearray | memoryview | Span) -> bool:
    return type(part) is Span or len(part) > BIG_PART_BYTES  # type: ignore[arg-type]


def _stepped(size: int) -> int:
    """So many bytes, some more, and up to the next step."""
    return (size + 2 * BUFFER_STEP_BYTES) // BUFFER_STEP_BYTES * BUFFER_STEP_BYTES
