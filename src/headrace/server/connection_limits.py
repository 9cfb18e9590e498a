"""Connection limits: how many connections a node accepts, which it closes because they are idle, and why it
refuses a frame.

`Connections` is what all connections of the process share: limits, counters, buffers, clock and log.

A connection is refused by closing it, because Kafka's protocol has no message for that. A sweep checks every
connection a few times per idle period, in slices, so that ten thousand connections need no timers.
"""

import asyncio
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, cast

from headrace.base.limits import FRAME_BYTES_MAX, UNSENT_BYTES_MAX
from headrace.node.routes import PRODUCE
from headrace.server.clock import Clock
from headrace.server.gathered_answers import GatheredAnswers
from headrace.server.logs import Log
from headrace.server.request_memory import RequestMemory

if TYPE_CHECKING:
    from headrace.server.connection import Channel
    from headrace.server.core_listener import Core

_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI ")
_api_key_at = struct.Struct(">h").unpack_from

# A frame that arrives whole in one read is handled where it lies, in this one buffer; only what is left
# over is copied into a buffer of the connection's own. So an idle connection holds none, and the cache
# stays warm.
SHARED_BUFFER_BYTES = 256 * 1024

# Files go to the sockets by way of one piece of memory that belongs to nobody: recreated for each answer it
# would first be filled with zeros, which was an eighth of a consumer's CPU. Per MB sent, pieces of 128 KiB
# cost 700 microseconds of CPU, of 512 KiB 510, of 1 MiB 470, of 2 and 4 MiB 390; os.sendfile cost 370 to 440
# and was slower for the client, so there is no second way. A reader that stops reading may keep one piece.
PIECE_BYTES = 2 * 1024 * 1024

# Share of the process's descriptors that connections leave to files: without one, a log could not roll its
# segment, and its directory would go offline for a reason that is not the disk's.
DESCRIPTORS_FOR_FILES = 0.2

# Connections looked at per turn of the loop: about 20 microseconds.
SWEEP_SLICE = 128

# While others wait for memory, who stops in the middle of a frame for this long loses its connection.
STALLED_S_MAX = 10.0

# Who is not read from because of its own requests cannot be heard hanging up either; after this long the
# system is asked.
ABANDONED_S = 1.0

# A big buffer that nothing arrived in for this long is given back.
UNUSED_BUFFER_S = 1.0


# Sweeps, about a second each, in which nothing was sent from the piece, after which its memory is given back.
PIECE_IDLE_SWEEPS = 2


def _piece() -> memoryview:
    # mapped, not a bytearray: memory that no consumer has used yet need not be there, or be filled with zeros
    return memoryview(mmap.mmap(-1, PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


@dataclass(slots=True)
class ConnectionLimits:
    """Kafka's settings of the same names; for memory and idle time, 0 or less means no limit."""

    frame_bytes_max: int = FRAME_BYTES_MAX  # socket.request.max.bytes
    request_bytes_max: int = 512 * 1024 * 1024  # queued.max.request.bytes: frames in arrival, all together
    connections_max: int = 2**31 - 1  # max.connections
    connections_per_address_max: int = 2**31 - 1  # max.connections.per.ip
    connections_per_address: dict[str, int] = field(default_factory=dict)  # max.connections.per.ip.overrides
    # listener.name.<listener>.max.connections
    connections_per_listener: dict[str, int] = field(default_factory=dict)
    spared_listeners: frozenset[str] = frozenset()  # for other nodes: max.connections does not refuse them
    idle_ms_max: int = 600_000  # connections.max.idle.ms
    descriptors_max: int = 2**31 - 1  # what the kernel allows this process: RLIMIT_NOFILE


class Buffers:
    """What all connections of a process receive into, and send records from. One that starts one node after
    the other, as a test does, keeps them.
    """

    __slots__ = ("piece", "shared_view")

    def __init__(self) -> None:
        self.shared_view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.piece = _piece()


class Connections:
    __slots__ = (
        "_addresses",
        "_listeners",
        "_look_at_settings",
        "_loop",
        "_sweep_timer",
        "accepted",
        "audit_lost",
        "audit_written",
        "buffers",
        "bytes_in",
        "bytes_out",
        "certificates_expire",
        "channels",
        "clock",
        "frames_refused",
        "gathered",
        "gatherers",
        "handshakes_failed",
        "idle",
        "limits",
        "log",
        "memory",
        "open_listeners",
        "peer_logins_failed",
        "piece",
        "piece_idle_sweeps",
        "refused",
        "reloads_failed",
        "shared_view",
        "unsent",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        log: Log,
        limits: ConnectionLimits,
        buffers: Buffers | None = None,
    ) -> None:
        self._loop = loop
        self.clock = clock
        self.log = log
        self.limits = limits
        self.memory = RequestMemory(limits.request_bytes_max if limits.request_bytes_max > 0 else 2**63)
        self.buffers = Buffers() if buffers is None else buffers
        self.shared_view = self.buffers.shared_view
        self.piece = self.buffers.piece
        self.piece_idle_sweeps = PIECE_IDLE_SWEEPS  # whoever sends from it sets this to 0
        self.gathered = GatheredAnswers(loop.call_soon)
        self.gatherers: list[GatheredAnswers | Core] = [self.gathered]
        self.channels: dict[int, Channel] = {}  # by the connection's id
        self._addresses: dict[str, int] = {}
        self._listeners: dict[str, int] = {}  # connections of each
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._look_at_settings: Callable[[], None] = lambda: None
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted = 0
        self.refused = 0
        self.idle = 0
        self.frames_refused = 0
        self.handshakes_failed = 0
        self.reloads_failed = 0  # of certificates
        self.peer_logins_failed = 0  # of this node at others
        # when the first certificate of each TLS listener expires, in seconds since 1970
        self.certificates_expire: Callable[[], dict[str, int]] = dict
        self.audit_written = 0  # entries of the audit log
        self.audit_lost = 0
        self.open_listeners = 0  # without TLS, that other machines reach
        self.unsent: dict[Channel, int] = {}  # bytes that wait for clients that do not take them
        self.unsent_bytes = 0

    def note_unsent(self, channel: "Channel", size: int) -> None:
        """So much waits in its write buffer; when all have too much, the one with the most is closed. A piece
        of a file that a slow reader holds does not count: there is one for each connection at the most.
        """
        size = max(0, size - PIECE_BYTES)
        self.unsent_bytes += size - self.unsent.pop(channel, 0)
        if size:
            self.unsent[channel] = size
        if self.unsent_bytes > UNSENT_BYTES_MAX:
            largest = max(self.unsent, key=self.unsent.__getitem__)
            most = self.unsent.pop(largest)
            self.unsent_bytes -= most
            largest.close(
                f"{most} bytes of answers wait until this client reads them, more than for any other client; "
                f"all clients together exceed the limit of {UNSENT_BYTES_MAX} bytes"
            )

    def new_piece(self) -> None:
        """Allocates another piece of memory: the old one is still being sent."""
        self.piece = self.buffers.piece = _piece()

    def release_unused_piece(self) -> None:
        """Asked in each sweep."""
        if self.piece_idle_sweeps < PIECE_IDLE_SWEEPS:
            self.piece_idle_sweeps += 1
            if self.piece_idle_sweeps == PIECE_IDLE_SWEEPS:
                cast(mmap.mmap, self.piece.obj).madvise(mmap.MADV_DONTNEED)

    def send_gathered(self) -> None:
        for gatherer in self.gatherers:
            gatherer.send()

    def admit(self, channel: "Channel", descriptor: int) -> str | None:
        """Counts the connection, or returns why it is refused. The kernel assigns the lowest free descriptor,
        so its number says how many are in use.
        """
        limits = self.limits
        address = channel.connection.address
        from_address = self._addresses.get(address, 0)
        per_address = limits.connections_per_address.get(address, limits.connections_per_address_max)
        listener = channel.connection.listener
        of_listener = limits.connections_per_listener.get(listener)
        if of_listener is not None and self._listeners.get(listener, 0) >= of_listener:
            self.refused += 1
            return f"listener.name.{listener.lower()}.max.connections={of_listener} reached"
        if len(self.channels) >= limits.connections_max and listener not in limits.spared_listeners:
            self.refused += 1
            return f"max.connections={limits.connections_max} reached"
        if from_address >= per_address:
            self.refused += 1
            return f"max.connections.per.ip={per_address} reached"
        if descriptor > limits.descriptors_max * (1 - DESCRIPTORS_FOR_FILES):
            self.refused += 1
            return f"{descriptor} of {limits.descriptors_max} descriptors are in use: raise ulimit -n"
        self._addresses[address] = from_address + 1
        self._listeners[listener] = self._listeners.get(listener, 0) + 1
        self.channels[channel.connection.id] = channel
        self.accepted += 1
        if len(self.channels) > limits.connections_max:
            self._make_room()
        return None

    def _make_room(self) -> None:
        """Closes the client's connection that was quiet for longest: another node takes its place, or
        max.connections was lowered.
        """
        spared = self.limits.spared_listeners
        others = [
            one
            for one in self.channels.values()
            if one.connection.listener not in spared and not one.is_closed
        ]
        quietest = min(others, key=lambda one: one.active_at, default=None)
        if quietest is not None:
            quietest.close(f"max.connections={self.limits.connections_max} is exceeded")

    def leave(self, channel: "Channel") -> None:
        self.note_unsent(channel, 0)
        if self.channels.pop(channel.connection.id, None) is None:
            return  # never admitted
        self._listeners[channel.connection.listener] -= 1
        address = channel.connection.address
        left = self._addresses[address] - 1
        if left:
            self._addresses[address] = left
        else:
            del self._addresses[address]

    # --- the sweep ------------------------------------------------------------------------------------

    def start_sweeping(self, look_at_settings: Callable[[], None]) -> None:
        """From now on; before each sweep limits may be changed, since some of them are dynamic settings."""
        self._look_at_settings = look_at_settings
        self._later(self.sweep_period_s, self._begin_sweep)

    def stop_sweeping(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    @property
    def sweep_period_s(self) -> float:
        return min(1.0, self.limits.idle_ms_max / 1000 / 8) if self.limits.idle_ms_max > 0 else 1.0

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._sweep_timer = self._loop.call_later(delay_s, act)

    def _begin_sweep(self) -> None:
        self._look_at_settings()
        if len(self.channels) > self.limits.connections_max:
            self._make_room()  # one in each sweep: nobody is in a hurry
        self.release_unused_piece()
        self._sweep_on(iter(list(self.channels.values())))

    def _sweep_on(self, channels: "Iterator[Channel]") -> None:
        some = list(islice(channels, SWEEP_SLICE))
        self.sweep(some)
        if len(some) == SWEEP_SLICE:
            self._later(0.0, lambda: self._sweep_on(channels))
        else:
            self._later(self.sweep_period_s, self._begin_sweep)

    def sweep(self, channels: "list[Channel]") -> None:
        """Closes connections that are idle for too long or were abandoned, and frees large unused buffers."""
        mono = self.clock.now().mono
        idle_s_max = self.limits.idle_ms_max / 1000
        is_short = self.memory.is_short
        for channel in channels:
            silent_s = mono - channel.active_at
            if silent_s > UNUSED_BUFFER_S:
                channel.release_unused_buffer()
            if is_short and silent_s > STALLED_S_MAX and channel.awaits_rest_of_frame:
                channel.close("the rest of a request did not arrive, and other clients wait for its memory")
            elif silent_s > ABANDONED_S and channel.is_abandoned():
                channel.close("the client has gone")
            elif idle_s_max > 0 and channel.is_idle_since(mono - idle_s_max):
                self.idle += 1
                channel.close("idle")


def refusal_of_long_frame(view: memoryview, start: int, size: int) -> str:
    """Why the node would refuse a frame of this length after all of it has arrived; empty if it would not."""
    (api_key,) = _api_key_at(view, start)
    if api_key == PRODUCE:
        return ""
    return f"API {api_key}: the request has {size} bytes, too many for a request without records"


def describe_bad_size(head: bytes, size: int, size_max: int) -> str:
    """What a bad size most likely is, for the operator's log."""
    if head[:2] == b"\x16\x03":
        return "a TLS client on a plaintext listener: check security.protocol"
    if head in _HTTP:
        return "an HTTP client on a Kafka listener"
    if size > size_max:
        return f"frame of {size} bytes exceeds socket.request.max.bytes={size_max}"
    return f"frame of {size} bytes cannot be a request"
