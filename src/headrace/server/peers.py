"""Connections to other nodes: one for each peer and lane, opened when the node first sends something there.

Requests leave in the order in which the node gives them. Responses are read into one buffer per connection,
which is reused: the node keeps no view of it. A connection that ends is opened again by the node's next
request, not by itself.

A test can cut the network to some peers. Connections to them stand still, as on a network that loses every
packet: nothing arrives, nobody gets an error, and what was sent meanwhile arrives when the cut has ended.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Collection
from struct import Struct
from typing import cast

from headrace.node.peers import Peer, Unanswered

# A response's size and correlation id.
_PREFIX = Struct(">ii")
_SIZE_BYTES = 4

BUFFER_BYTES = 64 * 1024

# A buffer that grew for one large response is not kept.
KEPT_BUFFER_BYTES_MAX = 4 * 1024 * 1024

# A peer's responses have at most this many bytes: those of a Fetch are limited by the request, to less.
RESPONSE_BYTES_MAX = 256 * 1024 * 1024

# What this process or its host lacks. It says nothing about the peer, which must not count as gone.
_OUR_OWN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
_RESOLVER_FAILED = {socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY, socket.EAI_SYSTEM}

Answered = Callable[[int, "memoryview | Unanswered"], None]


def is_our_own(error: Exception) -> bool:
    """Whether a connection was not made for a reason on our side."""
    if isinstance(error, socket.gaierror):
        return error.errno in _RESOLVER_FAILED
    return isinstance(error, OSError) and error.errno in _OUR_OWN


class PeerConnections:
    """All connections to other nodes. `answered` is called in the loop's thread, never inside `send`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answered: Answered) -> None:
        self._loop = loop
        self._answered = answered
        self._connections: dict[tuple[int, str], _PeerConnection] = {}
        self._cut_off: frozenset[int] = frozenset()  # peers, by a test
        self._buried: list[_PeerConnection] = []  # that were given up while their peer was cut off

    def cut_off(self, peers: Collection[int]) -> None:
        """For tests: let nothing through to these peers and from them, until a later call leaves them out."""
        before, self._cut_off = self._cut_off, frozenset(peers)
        for connection in list(self._connections.values()):
            if connection.peer.id in self._cut_off - before:
                connection.freeze()
            elif connection.peer.id in before - self._cut_off:
                connection.thaw(self._loop)
        for connection in self._buried:
            if connection.peer.id not in self._cut_off:
                connection.abort()
        self._buried = [one for one in self._buried if one.peer.id in self._cut_off]

    def send(self, ticket: int, peer: Peer, lane: str, frame: bytes) -> None:
        key = (peer.id, lane)
        connection = self._connections.get(key)
        if connection is not None and connection.peer != peer:  # it listens elsewhere now
            self.hang_up(peer.id, lane)
            connection = None
        if connection is None:
            connection = self._connections[key] = _PeerConnection(self, peer, lane)
            if peer.id in self._cut_off:
                connection.freeze()
            else:
                connection.open(self._loop)
        connection.send(ticket, frame)

    def hang_up(self, peer_id: int, lane: str) -> None:
        connection = self._connections.pop((peer_id, lane), None)
        if connection is not None and peer_id in self._cut_off:
            self._buried.append(connection)  # the peer does not hear of it either
            connection.end(Unanswered.LOST)
        elif connection is not None:
            connection.abort()

    def close(self) -> None:
        """The process stops: nobody is told about requests that are under way."""
        connections, self._connections = [*self._connections.values(), *self._buried], {}
        for connection in connections:
            connection.tickets.clear()
            connection.abort()

    def received(self, ticket: int, frame: memoryview) -> None:
        self._answered(ticket, frame)

    def ended(self, connection: "_PeerConnection", why: Unanswered, *, at_once: bool = False) -> None:
        """The connection was not made, or is gone. Whoever waits is told after the current call. `at_once`:
        the loop calls, not the node. Clients of a process that ended ask about it in the same millisecond.
        """
        key = (connection.peer.id, connection.lane)
        if self._connections.get(key) is connection:
            del self._connections[key]
        tickets = list(connection.tickets)
        connection.tickets.clear()
        for ticket in tickets:
            if at_once:
                self._answered(ticket, why)
            else:
                self._loop.call_soon(self._answered, ticket, why)


class _PeerConnection(asyncio.BufferedProtocol):
    def __init__(self, connections: PeerConnections, peer: Peer, lane: str) -> None:
        self.peer = peer
        self.lane = lane
        self.tickets: dict[int, None] = {}  # of requests without an answer, in order
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []  # until the connection is made
        self._opening: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_frozen = False
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._opening = loop.create_task(self._open(loop))

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await loop.create_connection(lambda: self, self.peer.host, self.peer.port)
        except (OSError, ValueError, OverflowError) as error:  # the last two: not a host name, or not a port
            self.end(Unanswered.LOST if is_our_own(error) else Unanswered.REFUSED)

    def send(self, ticket: int, frame: bytes) -> None:
        self.tickets[ticket] = None
        if self._transport is None or self._is_frozen:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def freeze(self) -> None:
        self._is_frozen = True
        if self._transport is not None:
            self._transport.pause_reading()
        elif self._opening is not None:
            self._opening.cancel()
            self._opening = None

    def thaw(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_frozen = False
        if self._transport is None:
            self.open(loop)
        else:
            self._transport.resume_reading()
            self._send_unsent(self._transport)

    def _send_unsent(self, transport: asyncio.Transport) -> None:
        unsent, self._unsent = self._unsent, []
        transport.writelines(unsent)

    def abort(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self.end(Unanswered.LOST)
        if self._transport is not None:
            self._transport.abort()

    def end(self, why: Unanswered, *, at_once: bool = False) -> None:
        if not self._is_over:
            self._is_over = True
            self._connections.ended(self, why, at_once=at_once)

    # --- asyncio's calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
            return
        if self._is_frozen:
            self._transport.pause_reading()
        its_socket = transport.get_extra_info("socket")
        its_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._is_frozen:
            self._send_unsent(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(Unanswered.LOST, at_once=True)

    def eof_received(self) -> bool:
        self.end(Unanswered.LOST, at_once=True)
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        start = 0
        while self._filled - start >= _PREFIX.size and not self._is_over:
            size, ticket = _PREFIX.unpack_from(self._view, start)
            stop = start + _SIZE_BYTES + size
            if not _SIZE_BYTES <= size <= RESPONSE_BYTES_MAX or next(iter(self.tickets), None) != ticket:
                self.abort()  # it does not speak the protocol
                return
            if stop > self._filled:
                break
            del self.tickets[ticket]
            self._connections.received(ticket, self._view[start + _SIZE_BYTES : stop])
            start = stop
        self._make_room(start)

    def _make_room(self, start: int) -> None:
        """Keep what was not a whole frame yet, at the buffer's beginning, with space for the rest of it."""
        rest = self._filled - start
        needed = BUFFER_BYTES
        if rest >= _PREFIX.size:  # else the size was not checked yet
            needed = max(needed, _SIZE_BYTES + int.from_bytes(self._view[start : start + _SIZE_BYTES]))
        if needed > len(self._buffer) or len(self._buffer) > max(KEPT_BUFFER_BYTES_MAX, needed):
            fresh = bytearray(needed)
            fresh[:rest] = self._view[start : self._filled]
            self._buffer, self._view = fresh, memoryview(fresh)
        elif start and rest:
            self._view[:rest] = bytes(self._view[start : self._filled])
        self._filled = rest
