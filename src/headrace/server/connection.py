"""One client's connection: bytes in, frames to the node; `outbox.py` is its sending half.

Frames are handled where they lie, one after the other, as plain calls. No view of a buffer outlives the
node's `handle`: what remains of a read is copied into a buffer of our own, since the shared one is the next
one's.
"""

import asyncio
import socket
import struct
from time import monotonic
from typing import TYPE_CHECKING, cast

from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX, UNSENT_BYTES_PER_CONNECTION_MAX
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.node.routes import PRODUCE
from headrace.server.gate import SHARED_BUFFER_BYTES
from headrace.server.outbox import CLOSED, FULL, MEMORY, MUTED, STOPPING, TURN, Outbox
from headrace.server.room import Room
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.server.driver import Driver
    from headrace.server.gate import Gate

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
_api_key_at = struct.Struct(">h").unpack_from
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI ")


class Channel(Outbox):
    __slots__ = (
        "_end",
        "_frame_began_at",
        "_handle",
        "_mute_timer",
        "_now",
        "_rearm",
        "_room",
        "_start",
        "_take_effects",
        "_taken",
        "_turn_began_at",
    )

    def __init__(self, gate: "Gate", driver: "Driver", listener: str) -> None:
        super().__init__(gate, driver, Connection(driver.next_connection_id(), listener=listener, address=""))
        self._handle = driver.handle
        self._take_effects = driver.node.take_effects
        self._rearm = driver.rearm
        self._now = gate.clock.now
        self._room: Room | None = None  # our own; None: read into the shared one
        self._start = 0  # of what is not handled yet, in our own room
        self._end = 0
        self._taken = 0  # of the memory for requests
        self._turn_began_at = (
            0.0  # when the first of reads began that follow each other without a break; 0: none
        )
        self._mute_timer: asyncio.TimerHandle | None = None
        self._frame_began_at = 0.0  # when the frame that is not complete yet began; 0: none

    # --- asyncio's calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.connection.address = peer[0] if peer else ""
        now = self._gate.clock.now()
        self.active_at = now.mono
        its_socket = transport.get_extra_info("socket")
        refusal = self._gate.admit(self, its_socket.fileno())
        if refusal is not None:
            self._holds |= CLOSED
            self._gate.log.sometimes(
                now.mono, "warning", "connection_refused", address=self.connection.address, reason=refusal
            )
            self._transport.abort()
            return
        its_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if transport.get_extra_info("ssl_object") is None:
            self._descriptor = its_socket.fileno()
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_PER_CONNECTION_MAX)
        self._driver.connected(now, self.connection)

    def connection_lost(self, error: Exception | None) -> None:
        self._holds |= CLOSED
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._drop_room()
        self._gate.memory.forget(self)
        self._unsent.clear()
        if self.connection.id in self._gate.channels:
            self._gate.leave(self)
            self._driver.disconnected(self._gate.clock.now(), self.connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._room
        if room is None:
            return self._gate.shared_view
        end = self._end
        return room.view[end : min(room.granted, end + RECEIVED_BYTES_MAX)]

    def buffer_updated(self, count: int) -> None:
        gate = self._gate
        gate.bytes_in += count
        room = self._room
        if room is None:
            is_full = count == SHARED_BUFFER_BYTES
            self._frames(gate.shared_view, 0, count)
        else:
            is_full = count == RECEIVED_BYTES_MAX or self._end + count == room.granted
            self._frames(room.view, self._start, self._end + count)
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
        elif monotonic() - self._turn_began_at > TURN_S_MAX and not self._holds:
            self.hold(TURN)
            self._driver.soon(self._take_turn)

    def eof_received(self) -> bool:
        return False  # nobody reads our answers any more

    # --- frames -----------------------------------------------------------------------------------------

    def _frames(self, view: memoryview, start: int, end: int) -> None:
        """Hand all whole frames in view[start:end] to the node, and keep the rest."""
        now = self._now()
        self.active_at = began = now.mono
        handle, take_effects, connection = self._handle, self._take_effects, self.connection
        answers: Parts = []  # small ones are sent together: a system call costs more than making one
        fault = ""
        count = 0
        while end - start >= 4:
            (size,) = _size_at(view, start)
            stop = start + 4 + size
            if size < FRAME_BYTES_MIN or size > self._gate.limits.frame_bytes_max:
                self._gate.frames_refused += 1
                fault = _describe(bytes(view[start : start + 4]), size, self._gate.limits.frame_bytes_max)
                break
            if stop > end:
                if size > FRAME_WITHOUT_RECORDS_BYTES_MAX and end - start >= 4 + FRAME_BYTES_MIN:
                    fault = _hopeless(view, start + 4, size)
                    self._gate.frames_refused += bool(fault)
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
            if start == end or self._holds:
                break
            if count % FRAMES_BETWEEN_CLOCKS == 0 and monotonic() - began > TURN_S_MAX:
                self.hold(TURN)
                self._driver.soon(self._take_turn)
                break
        if answers:
            self.send(answers)
        if fault:
            self.close(fault)
        self._rearm()
        if start == end:
            self._start = self._end = 0
            self._frame_began_at = 0.0
            if self._room is not None and (not self._taken or self._gate.memory.is_short):
                self._drop_room()
        elif not self._holds & CLOSED:
            self._keep_rest(view, start, end, None if count else self._frame_began_at)

    def _keep_rest(self, view: memoryview, start: int, end: int, began_at: float | None) -> None:
        """What is left: the beginning of a frame, or frames that must wait. began_at: of that same frame."""
        self._frame_began_at = began_at or self.active_at
        if began_at is None and self._taken and self._gate.memory.is_short:
            # Others wait for memory, and a frame is done: the next one takes its turn in the queue.
            rest = memoryview(bytes(view[start:end]))
            self._drop_room()
            self._keep(rest, 0, len(rest))
        else:
            self._keep(view, start, end)

    def _take_turn(self) -> None:
        self._turn_began_at = 0.0
        self.release(TURN)

    def _keep(self, view: memoryview, start: int, end: int) -> None:
        """Hold on to view[start:end] in our own room, with enough of it for the frame that begins there."""
        left = end - start
        size = 4 + _size_at(view, start)[0] if left >= 4 else 4
        needed = min(size, max(TRUSTED_BYTES, GROWTH * left))
        needed = max(needed, left + 1)  # whoever is read from has room to read into
        room = self._room
        if room is not None and needed <= room.granted:
            if start + needed > room.granted:
                room.view[:left] = view[start:end]
                start, end = 0, left
            self._start, self._end = start, end
            return
        granted = SMALL_BUFFER_BYTES
        if needed > SMALL_BUFFER_BYTES:
            granted = _stepped(needed)
            if not self._gate.memory.take(self, granted - self._taken):
                self.hold(MEMORY)
                if room is not None:
                    self._start, self._end = start, end
                    return
                granted = left  # what has arrived has to lie somewhere; at most the shared buffer's size
            else:
                self._taken = granted
        if room is not None and granted <= len(room.view):
            if start:
                room.view[:left] = view[start:end]
            room.granted = granted
            self._start, self._end = 0, left
            return
        self._move(view[start:end], granted, max(granted, _stepped(size)))

    def _move(self, rest: memoryview, granted: int, size: int) -> None:
        """To a room of that size."""
        try:
            room = Room(size, granted)
        except OSError as error:
            self.close(f"no room for a frame of {size} bytes: {error}")
            return
        room.view[: len(rest)] = rest
        old, self._room = self._room, room
        self._start, self._end = 0, len(rest)
        if old is not None:
            old.give_back(self._driver.soon)

    def memory_granted(self) -> None:
        self.release(MEMORY)

    def _drop_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.give_back(self._driver.soon)
        self._start = self._end = 0
        taken, self._taken = self._taken, 0
        if taken:
            self._gate.memory.give_back(self, taken)

    def release_unused_buffer(self) -> None:
        if self._room is not None and self._start == self._end:
            self._drop_room()

    @property
    def awaits_rest_of_frame(self) -> bool:
        """It is the client's turn, in the middle of a frame."""
        return self._start != self._end and not self._holds

    def is_idle_since(self, instant: float) -> bool:
        """Nothing has moved since then though it was the client's turn, or one frame takes that long."""
        if self.connection.pending or self._holds & (MEMORY | MUTED | TURN | STOPPING | CLOSED):
            return False
        if self._is_reading_file:
            return False
        return self.active_at <= instant or (self._frame_began_at != 0.0 and self._frame_began_at <= instant)

    def is_abandoned(self) -> bool:
        """Its client hung up while nothing was read from it. Otherwise its long polls would wait for nobody,
        and be asked at every append.
        """
        if not self._is_paused or self._holds & CLOSED or TCP_INFO is None:
            return False
        peer = self._transport.get_extra_info("socket")
        return peer.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)[0] in GONE_STATES

    # --- holding and going on ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._holds or not self._is_paused:
            return
        if self._room is not None and self._start != self._end:
            self._frames(self._room.view, self._start, self._end)
        if not self._holds:
            self._is_paused = False
            self._transport.resume_reading()

    def mute(self, delay_s: float) -> None:
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self.hold(MUTED)
        self._mute_timer = self._driver.later(delay_s, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self.release(MUTED)

    def answer(self, parts: Parts) -> None:
        """An answer that had to wait."""
        self.send(parts)
        self.proceed()

    def proceed(self) -> None:
        """Something of what it had asked for is done."""
        if self._holds & FULL and not self.connection.is_full:
            self.release(FULL)


def _is_big(part: bytes | bytearray | memoryview | Span) -> bool:
    return type(part) is Span or len(part) > BIG_PART_BYTES  # type: ignore[arg-type]


def _hopeless(view: memoryview, start: int, size: int) -> str:
    """Why the node would refuse so long a frame when all of it has come; empty if it would not."""
    (api_key,) = _api_key_at(view, start)
    if api_key == PRODUCE:
        return ""
    return f"API {api_key} with {size} bytes: too many for a request without records"


def _stepped(size: int) -> int:
    """So many bytes, some more, and up to the next step."""
    return (size + 2 * BUFFER_STEP_BYTES) // BUFFER_STEP_BYTES * BUFFER_STEP_BYTES


def _describe(head: bytes, size: int, size_max: int) -> str:
    """What a bad size most likely is, for the operator's log."""
    if head[:2] == b"\x16\x03":
        return "a TLS client on a plaintext listener: check security.protocol"
    if head in _HTTP:
        return "an HTTP client on a Kafka listener"
    if size > size_max:
        return f"frame of {size} bytes exceeds socket.request.max.bytes={size_max}"
    return f"frame of {size} bytes cannot be a request"
