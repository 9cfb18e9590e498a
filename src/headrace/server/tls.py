"""TLS of a connection: between the socket's transport and the channel, for which it is the transport.

    accepted --handshake--> open --close_notify, or the end--> closed

OpenSSL works on memory: ciphertext goes in from one receive buffer that all connections of the listener
share, plaintext goes straight to where the connection wants it. A connection is counted and may be refused
before its handshake, which has 10 seconds. asyncio's own TLS would keep buffers for each connection, and tell
of a connection only after the handshake, so that clients that never finish it would count for no limit.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from os import write, writev
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.machines.security.errors import LoginRefused
from headrace.server.tls_refusals import HELLO_BEGINS, explain, refusal_of_hello

if TYPE_CHECKING:
    from headrace.node.connection import Connection
    from headrace.server._core import CoreTransport
    from headrace.server.connection import Channel
    from headrace.server.tls_listener import TlsListener

HANDSHAKE_S_MAX = 10.0

RECORD_BYTES = 16 * 1024  # of TLS, at the most

# OpenSSL's buffers in memory grow and never shrink: a connection would keep as much as was ever received at
# once. So what comes passes them in pieces, of two records with their overhead, and what leaves in records.
FED_BYTES = 2 * RECORD_BYTES + 512

# So much of a long answer is encrypted before it is sent. Memory for all of it would be new each time, and
# the kernel fills that with zeros first.
ENCRYPTED_BYTES = 64 * 1024

# So much is received at a time before the handshake is over: a usual hello has less.
HANDSHAKE_BYTES = 4 * 1024

_NOTHING = memoryview(b"")


class SecuredChannel(Protocol):
    """A connection above TLS: of Kafka's protocol, or of HTTP."""

    connection: "Connection"

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def connection_lost(self, error: Exception | None, /) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def buffer_updated(self, count: int, /) -> None: ...
    def shown_certificate(self, principal: str, /) -> None: ...
    def refused_handshake(self, reason: str, /) -> None: ...
    def close(self, reason: str, /) -> None: ...


class EncryptedAnswers:
    """What `GatheredAnswers` is to connections without TLS, if the compiled core has the socket. An answer is
    encrypted at once, in order, and the core sends it at the end of its batch.
    """

    __slots__ = ()

    last = None  # a lone answer takes the same way
    waiting: Mapping["Channel", object] = {}  # none: all of them are with the socket's transport

    def add(self, channel: "Channel", data: bytes) -> None:
        channel.transport.write(data)

    def send_of(self, channel: "Channel") -> None:
        cast(TlsTransport, channel.transport).send_gathered()

    def forget(self, channel: "Channel") -> None:
        """The core forgets a connection by itself."""


ENCRYPTED_ANSWERS = EncryptedAnswers()


class TlsTransport(asyncio.BufferedProtocol):
    """To the socket's transport a protocol, to the channel a transport."""

    decrypts = True

    __slots__ = (
        "_channel",
        "_core_transport",
        "_descriptor",
        "_has_begun",
        "_incoming",
        "_is_open",
        "_is_over",
        "_is_paused",
        "_is_queued",
        "_is_shaking",
        "_listener",
        "_outgoing",
        "_read",
        "_rest",
        "_socket_transport",
        "_timer",
        "_tls",
    )

    def __init__(self, listener: "TlsListener", channel: SecuredChannel) -> None:
        self._listener = listener
        self._channel = channel
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject  # when its handshake begins: it takes most of the memory
        self._read: Callable[[int, memoryview], int]
        self._rest = _NOTHING  # ciphertext that OpenSSL has not got yet
        self._socket_transport: asyncio.Transport
        self._core_transport: CoreTransport | None = None  # the same one, if the compiled core has the socket
        self._descriptor = -1
        self._timer: asyncio.TimerHandle | None = None  # of the handshake
        self._has_begun = False  # the handshake, by the client
        self._is_shaking = False  # hands: we have begun, too
        self._is_open = False
        self._is_over = False  # nothing is read or written any more
        self._is_paused = False  # by the channel
        self._is_queued = False  # for a turn in which its handshake goes on

    # --- what the socket's transport calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket_transport = cast(asyncio.Transport, transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        if hasattr(transport, "gather"):
            self._core_transport = cast("CoreTransport", transport)
        self._timer = self._listener.loop.call_later(HANDSHAKE_S_MAX, self._handshake_took_too_long)
        self._channel.connection_made(cast(asyncio.Transport, self))

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._listener.waits_no_longer(self)
        self._forget_timer()
        channel = self._channel
        del self._channel  # the collector runs too rarely for a cycle of the two
        channel.connection_lost(error)

    def eof_received(self) -> bool:
        if not self._is_open:
            self._fail("the client hung up")
        elif not self._is_over:
            self._channel.eof_received()
        return False

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        ciphertext = self._listener.ciphertext
        return ciphertext if self._is_open else ciphertext[:HANDSHAKE_BYTES]

    def buffer_updated(self, count: int) -> None:
        if self._is_over:
            return
        data = self._listener.ciphertext[:count]
        if self._is_open:
            self._take(data)
            return
        self._listener.waits_no_longer(self)
        if not self._has_begun:
            data = memoryview(bytes(self._rest) + data)
            refusal = refusal_of_hello(bytes(data[:HELLO_BEGINS]))
            if refusal is not None:
                self._fail(refusal)
                return
            if len(data) < HELLO_BEGINS:
                self._rest = data
                self._listener.wait_for(self)
                return
            self._rest = _NOTHING
        self._has_begun = True
        self._incoming.write(data)
        if self._is_paused:
            return  # a new connection that is to wait: it shakes hands when it is resumed
        if not self._is_queued and self._listener.take_turn(self):
            self.shake_hands()
        elif not self._is_queued:
            self._is_queued = True
            self._socket_transport.pause_reading()  # what comes meanwhile stays in the socket

    def _take(self, data: memoryview) -> None:
        if self._rest:  # the channel has paused before it had all of it
            self._rest = memoryview(bytes(self._rest) + data)
        elif len(data) <= FED_BYTES:  # as most
            self._incoming.write(data)
        else:
            self._rest = data
        self._deliver()
        if self._rest.obj is data.obj:
            self._rest = memoryview(bytes(self._rest))  # the next connection has the buffer

    def _feed(self) -> bool:
        """Gives OpenSSL the next piece; whether there is one."""
        rest = self._rest
        if not rest:
            return False
        self._incoming.write(rest[:FED_BYTES])
        self._rest = rest[FED_BYTES:] if len(rest) > FED_BYTES else _NOTHING
        return True

    # --- the handshake -----------------------------------------------------------------------------------

    def shake_hands(self) -> None:
        """Goes on with what has come."""
        if self._is_queued:
            self._is_queued = False
            if not self._is_over and not self._is_paused:
                self._socket_transport.resume_reading()
        if self._is_over or self._is_open:
            return
        if not self._is_shaking:
            self._is_shaking = True
            self._tls = self._listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            # Below SSLObject.read, which takes a fifth of the time that a short record takes.
            self._read = self._tls._sslobj.read  # type: ignore[attr-defined]
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            self._listener.wait_for(self)
            return
        except ssl.SSLError as error:
            self._fail(explain(error))
            return
        try:
            principal = self._listener.principal_of(self._tls.getpeercert(binary_form=True))
        except LoginRefused as error:
            self._fail(str(error))
            return
        if principal is not None:
            self._channel.shown_certificate(principal)
        self._is_open = True
        self._forget_timer()
        self._send()
        self._deliver()

    def _handshake_took_too_long(self) -> None:
        self._timer = None
        if self._is_paused:
            return  # we have not let it begin yet: there are too many new connections
        self._fail(f"not finished after {HANDSHAKE_S_MAX:.0f} seconds")

    def give_way(self, reason: str) -> None:
        self._listener.waits_no_longer(self)
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Closes the connection; the client gets OpenSSL's alert, if there is one."""
        if not self._is_over:
            self._listener.connections.handshakes_failed += 1
            if self._listener.settings.client_auth != "none":
                self._channel.refused_handshake(reason)
            self._channel.close(f"TLS handshake failed: {reason}")

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- bytes -------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Gives the channel all plaintext that is there, until it pauses."""
        channel, read, incoming = self._channel, self._read, self._incoming
        while not (self._is_paused or self._is_over):
            view = channel.get_buffer(-1)
            size = len(view)
            try:
                filled = read(size, view)
            except ssl.SSLError as error:
                filled = self._read_failed(error)
            else:
                if not filled:
                    self._close_notify_came()
            # A record has 16 KiB at the most. Where there is no ciphertext left, there is none behind it: to
            # ask would cost an exception for each request.
            if filled < size and filled and (incoming.pending or self._rest):
                filled += self._read_more(view, filled)
            if self._outgoing.pending:  # a key update is answered
                self._send()
            if filled:
                channel.buffer_updated(filled)
            if filled < size and (self._is_over or not self._feed()):
                return

    def _read_more(self, view: memoryview, filled: int) -> int:
        """More records, behind those; how many bytes there were. librdkafka makes two records of a message:
        this is the hot loop of a producer: an exception at its end costs less than a question before each.
        """
        left = before = len(view) - filled
        read = self._read
        while left:
            try:
                while left:
                    count = read(left, view[-left:])
                    if not count:
                        self._close_notify_came()
                        return before - left
                    left -= count
            except ssl.SSLError as error:
                self._read_failed(error)
                if not isinstance(error, ssl.SSLWantReadError) or not self._feed():
                    break
        return before - left

    def _read_failed(self, error: ssl.SSLError) -> int:
        if isinstance(error, ssl.SSLZeroReturnError):
            self._close_notify_came()
        elif not isinstance(error, ssl.SSLWantReadError):
            self._channel.close(f"TLS failed: {explain(error)}")
        return 0

    def _close_notify_came(self) -> None:
        self._rest = _NOTHING
        self._listener.loop.call_soon(self._ended)

    def _ended(self) -> None:
        """The client says nothing more. What it asked before is answered, as far as it can be now."""
        if not self._is_over:
            self._channel.eof_received()
            self.close()

    def _send(self) -> None:
        """To the socket at once if it has room, as `Channel.send_now` does."""
        if not self._outgoing.pending:
            return
        data = self._outgoing.read()
        if self._core_transport is not None:
            self._core_transport.gather(data)
            return
        transport = self._socket_transport
        sent = 0
        if not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                sent = write(self._descriptor, data)
            except OSError:
                sent = 0  # no room, or nobody there: the loop finds out as well
            if sent == len(data):
                return
        transport.write(memoryview(data)[sent:])

    def _send_all(self, pieces: list[bytes]) -> None:
        """The same for several pieces."""
        if self._core_transport is not None:
            self._core_transport.writelines(pieces)
            return
        transport = self._socket_transport
        sent = 0
        if pieces and not transport.get_write_buffer_size() and not transport.is_closing():
            try:
                sent = writev(self._descriptor, pieces)
            except OSError:
                sent = 0
        for piece in pieces:
            if sent < len(piece):
                transport.write(memoryview(piece)[sent:])
            sent = max(0, sent - len(piece))

    # --- what a channel asks of its transport ------------------------------------------------------------

    @property
    def gathered(self) -> EncryptedAnswers | None:
        return None if self._core_transport is None else ENCRYPTED_ANSWERS

    def send_gathered(self) -> None:
        if self._core_transport is not None:
            self._core_transport.send_gathered()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._listener.context
        return self._socket_transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket_transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket_transport.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._is_over or self._socket_transport.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._socket_transport.pause_reading()

    def resume_reading(self) -> None:
        """Not at once: the channel is inside a call."""
        self._is_paused = False
        self._listener.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """First what has come already."""
        if not self._is_open and not self._is_over:  # it was held, and has all its time for the handshake
            self._forget_timer()
            self._timer = self._listener.loop.call_later(HANDSHAKE_S_MAX, self._handshake_took_too_long)
            if self._has_begun and not self._is_queued and self._listener.take_turn(self):
                self.shake_hands()
        if self._is_open and not self._is_over:
            self._deliver()
        if not self._is_paused and not self._is_over and not self._is_queued:
            self._socket_transport.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_open or self._is_over:
            return
        try:
            if len(data) <= RECORD_BYTES:
                self._tls.write(data)
            else:
                self._write_long(memoryview(data))
        except ssl.SSLError as error:
            self._channel.close(f"TLS failed: {explain(error)}")
            return
        self._send()

    def _write_long(self, data: memoryview) -> None:
        """In records, some of which leave together."""
        sealed: list[bytes] = []
        for start in range(0, len(data), RECORD_BYTES):
            self._tls.write(data[start : start + RECORD_BYTES])
            sealed.append(self._outgoing.read())
            if len(sealed) * RECORD_BYTES >= ENCRYPTED_BYTES:
                self._send_all(sealed)
                sealed = []
        self._send_all(sealed)

    def writelines(self, parts: list[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(parts))  # joined, since each write makes a record of its own

    def close(self) -> None:
        """When all that was written has left."""
        self._end()
        self._socket_transport.close()

    def abort(self) -> None:
        self._end()
        self._socket_transport.abort()

    def _end(self) -> None:
        """Says goodbye: an alert, or close_notify."""
        if self._is_over:
            return
        if self._is_open:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the client's own close_notify is not waited for
        self._send()
        self.send_gathered()
        self._is_over = True
