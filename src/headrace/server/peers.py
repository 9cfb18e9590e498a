"""Connections to other nodes: one for each peer and lane, opened when the node first sends something there.

Requests leave in the order in which the node gives them. Responses are read into one buffer per connection,
which is reused, unless the node says that it keeps a response. A connection that ends is opened again by the
node's next request, not by itself.

    opening --TLS--> handshake --SASL--> login --> ready --the session's end is near--> login
       |                 |                 |
    REFUSED             LOST              LOST

TLS and the login are there if the settings ask for them (`peer_security.py`). Requests wait until they are
over. A session that is about to end is renewed on the same connection: what was sent before is answered
first, what comes meanwhile waits.

A test can cut the network to some peers. Connections to them stand still, as on a network that loses every
packet: nothing arrives, nobody gets an error, and what was sent meanwhile arrives when the cut has ended.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Collection
from struct import Struct
from typing import TYPE_CHECKING, cast

from headrace.node.peers import Peer, Unanswered
from headrace.server.receive_buffer import ReceiveBuffer

if TYPE_CHECKING:
    from headrace.client.security.tls import TlsStream
    from headrace.server.peer_login import PeerLogin
    from headrace.server.peer_security import PeerSecurity, Way

# A response's size and correlation id.
_PREFIX = Struct(">ii")
_SIZE_BYTES = 4

BUFFER_BYTES = 64 * 1024

# A buffer that grew for one large response is not kept.
KEPT_BUFFER_BYTES_MAX = 4 * 1024 * 1024

# The correlation id of a login's requests. Tickets of the node's own begin with 1.
LOGIN_TICKET = 0

# While a test has cut the network, a session is not renewed.
FROZEN_RENEWAL_S = 0.5

# A peer's responses have at most this many bytes: those of a Fetch are limited by the request, to less.
RESPONSE_BYTES_MAX = 256 * 1024 * 1024

# The answers to a login, from somebody who has not shown who it is yet.
LOGIN_BYTES_MAX = 512 * 1024

# What this process or its host lacks. It says nothing about the peer, which must not count as gone.
_OUR_OWN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
_RESOLVER_FAILED = {socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY, socket.EAI_SYSTEM}

# So much is received at a time: libuv may repeat that up to 32 times before others have their turn.
RECEIVED_BYTES_MAX = 256 * 1024

# The result says whether the answer is kept: its memory is not used for anything else then.
Answered = Callable[[int, "memoryview | Unanswered"], bool]


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
        self.security: PeerSecurity | None = None  # None: plaintext

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
                delay_s = 0.0 if self.security is None else self.security.delay_s(peer)
                connection.open(self._loop, delay_s)
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
        if self.security is not None:
            self.security.close()
        connections, self._connections = [*self._connections.values(), *self._buried], {}
        for connection in connections:
            connection.tickets.clear()
            connection.abort()

    def received(self, ticket: int, frame: memoryview) -> bool:
        return self._answered(ticket, frame)

    def soon(self, act: Callable[[], None]) -> object:
        return self._loop.call_soon(act)

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
        self._unsent: list[bytes] = []  # until the connection is made and the login is over
        self._in_flight = 0  # requests that were sent
        self._opening: asyncio.Task[None] | None = None
        self._is_ready = False  # requests may be sent
        self._is_over = False
        self._is_frozen = False
        self._buffer = ReceiveBuffer(BUFFER_BYTES, BUFFER_BYTES)
        self._view = self._buffer.view
        self._filled = 0
        security = connections.security
        self._way: Way | None = None if security is None else security.way(peer)
        self._tls: TlsStream | None = None
        self._login: PeerLogin | None = None  # one that is under way
        self._was_let_in = False
        self._renewal: asyncio.TimerHandle | None = None

    def open(self, loop: asyncio.AbstractEventLoop, delay_s: float = 0.0) -> None:
        self._opening = loop.create_task(self._open(loop, delay_s))

    async def _open(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
        try:
            await loop.create_connection(lambda: self, self.peer.host, self.peer.port)
        except (OSError, ValueError, OverflowError) as error:  # the last two: not a host name, or not a port
            self.end(Unanswered.LOST if is_our_own(error) else Unanswered.REFUSED)

    def send(self, ticket: int, frame: bytes) -> None:
        self.tickets[ticket] = None
        if not self._is_ready or self._is_frozen:
            self._unsent.append(frame)
        else:
            self._in_flight += 1
            self._write([frame])

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
            if self._is_ready:
                self._send_unsent()
            elif self._tls is None and self._login is None:
                self._begin()

    def _send_unsent(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._in_flight += len(unsent)
        if unsent:
            self._write(unsent)

    def _write(self, frames: list[bytes]) -> None:
        assert self._transport is not None
        if self._tls is None:
            self._transport.writelines(frames)
            return
        sealed = self._tls.sealed([*frames])
        if sealed:
            self._transport.writelines(cast("list[bytes]", sealed))

    def abort(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self.end(Unanswered.LOST)
        if self._transport is not None:
            self._transport.abort()

    def end(self, why: Unanswered, *, at_once: bool = False) -> None:
        if not self._is_over:
            self._is_over = True
            if self._renewal is not None:
                self._renewal.cancel()
            self._connections.ended(self, why, at_once=at_once)

    # --- TLS and the login ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The socket is connected."""
        if self._way is None:
            self._was_let_in = True
            self._be_ready()
            return
        from headrace.client.errors import TlsFailed

        try:
            self._tls = self._way.stream(self.peer.host)
            if self._tls is None:
                self._log_in()
                return
            self._tls.begin()
            self._write([])
        except TlsFailed as error:
            self._refused(error)

    def _log_in(self) -> None:
        security = self._connections.security
        if self._way is None or self._way.mechanism is None or security is None:
            self._be_ready()
            return
        self._is_ready = False
        security.log_in(self._way, self._begin_login)

    def _begin_login(self, login: "PeerLogin | Exception") -> None:
        """Perhaps a while later: a token may have to be fetched first."""
        if self._is_over or self._login is not None:
            return
        if self._is_frozen:  # by a test
            asyncio.get_running_loop().call_later(FROZEN_RENEWAL_S, self._begin_login, login)
        elif isinstance(login, Exception):
            self._refused(login)
        else:
            self._login = login
            self._write([login.begin()])

    def _continue_login(self, login: "PeerLogin", frame: memoryview) -> None:
        from headrace.client.errors import AuthenticationFailed

        try:
            request = login.answered(frame)
        except AuthenticationFailed as error:
            self._refused(error)
            return
        if request is not None:
            self._write([request])
            return
        self._login = None
        renew_after_s = login.renew_after_s()
        if renew_after_s is not None:
            self._renewal = asyncio.get_running_loop().call_later(renew_after_s, self._renew)
        self._let_in()
        self._be_ready()

    def _let_in(self) -> None:
        """By the login; by TLS alone when the first answer comes: the handshake is over for us before the
        peer has looked at our certificate.
        """
        self._was_let_in = True
        if self._connections.security is not None:
            self._connections.security.was_let_in(self.peer)

    def _be_ready(self) -> None:
        self._is_ready = True
        if not self._is_frozen:
            self._send_unsent()

    def _renew(self) -> None:
        """The session's end is near."""
        if self._is_frozen:  # by a test
            self._renewal = asyncio.get_running_loop().call_later(FROZEN_RENEWAL_S, self._renew)
        elif not self._is_over:
            self._log_in()

    def _refused(self, error: Exception) -> None:
        """We cannot trust the peer, or it does not let us in."""
        if self._is_over:
            return
        assert self._connections.security is not None
        self._connections.security.was_refused(self.peer, str(error))
        self.end(Unanswered.LOST, at_once=True)
        if self._transport is not None:
            self._write([])  # OpenSSL's alert tells the peer why
            self._transport.close()

    @property
    def _is_encrypted(self) -> bool:
        """As far as the settings want it."""
        return self._tls is None or self._tls.is_open

    def _cut(self) -> None:
        """The peer, or the network, has ended the connection."""
        security = self._connections.security
        if not self._is_over and self._way is not None and security is not None and not self._was_let_in:
            stage = "TLS handshake" if self._way.mechanism is None or not self._is_encrypted else "login"
            security.was_cut(self.peer, f"the connection was closed during the {stage}")
        self.end(Unanswered.LOST, at_once=True)

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
            self._begin()

    def connection_lost(self, error: Exception | None) -> None:
        self._cut()

    def eof_received(self) -> bool:
        self._cut()
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._tls is not None:
            return self._tls.room()
        return self._view[self._filled : self._filled + RECEIVED_BYTES_MAX]

    def buffer_updated(self, count: int) -> None:
        if self._tls is None:
            self._understand(count)
        elif not self._is_over:
            self._decrypt(self._tls, count)

    def _decrypt(self, tls: "TlsStream", count: int) -> None:
        from headrace.client.errors import TlsFailed

        try:
            was_open = tls.is_open
            tls.received(count)
            self._write([])
            if tls.is_open and not was_open:
                self._log_in()
            while not self._is_over and (count := tls.read_into(self._view[self._filled :])):
                self._understand(count)
            if not self._is_over:
                self._write([])  # a key update is answered
        except TlsFailed as error:
            self._refused(error)
            return
        if tls.is_closed and not self._is_over:
            self._cut()
            if self._transport is not None:
                self._transport.close()

    def _understand(self, count: int) -> None:
        """So many bytes of frames were added to the buffer."""
        self._filled += count
        start = 0
        is_kept = False
        while self._filled - start >= _PREFIX.size and not self._is_over:
            size, ticket = _PREFIX.unpack_from(self._view, start)
            stop = start + _SIZE_BYTES + size
            most = RESPONSE_BYTES_MAX if self._was_let_in or self._login is None else LOGIN_BYTES_MAX
            if not _SIZE_BYTES <= size <= most or not self._is_expected(ticket):
                self.abort()  # it does not speak the protocol
                return
            if stop > self._filled:
                break
            frame = self._view[start + _SIZE_BYTES : stop]
            if ticket:
                del self.tickets[ticket]
                self._in_flight -= 1
                if not self._was_let_in:
                    self._let_in()
                is_kept |= self._connections.received(ticket, frame)
            else:
                assert self._login is not None
                self._continue_login(self._login, frame)
            start = stop
        self._make_room(start, is_kept=is_kept)

    def _is_expected(self, ticket: int) -> bool:
        """Answers come in the order of the requests. A login comes behind all that was sent before it."""
        if self._in_flight:
            return next(iter(self.tickets), None) == ticket
        return ticket == LOGIN_TICKET and self._login is not None

    def _make_room(self, start: int, *, is_kept: bool) -> None:
        """Keep what was not a whole frame yet, at the buffer's beginning, with space for the rest of it. If a
        frame before it is kept, the buffer is another one.
        """
        rest = self._filled - start
        needed = BUFFER_BYTES
        if rest >= _PREFIX.size:  # else the size was not checked yet
            needed = max(needed, _SIZE_BYTES + int.from_bytes(self._view[start : start + _SIZE_BYTES]))
        size = len(self._view)
        if is_kept or needed > size or size > max(KEPT_BUFFER_BYTES_MAX, needed):
            try:
                fresh = ReceiveBuffer(needed, needed)
            except OSError:  # no more addresses
                self.abort()
                return
            fresh.view[:rest] = self._view[start : self._filled]
            old, self._buffer, self._view = self._buffer, fresh, fresh.view
            if not is_kept:
                old.give_back(self._connections.soon)
        elif start and rest:
            self._view[:rest] = bytes(self._view[start : self._filled])
        self._filled = rest
