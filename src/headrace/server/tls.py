"""TLS of a listener: between the socket's transport and a connection, for which it is the transport.

    accepted --handshake--> open --close_notify, or the end--> closed

OpenSSL works on memory: ciphertext goes in from one receive buffer that all connections of the listener
share, plaintext goes straight to where the connection wants it. A connection is counted and may be refused
before its handshake, which has 10 seconds. asyncio's own TLS would keep buffers for each connection, and tell
of a connection only after the handshake, so that clients that never finish it would count for no limit.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from os import write
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.machines.security.certificates import forbidden_change
from headrace.machines.security.der import InvalidDer
from headrace.machines.security.distinguished_names import subject_of_certificate
from headrace.machines.security.errors import LoginRefused
from headrace.node.listener_security import TlsSettings
from headrace.server.listeners import CannotListen
from headrace.server.tls_context import Certificates, load_certificates

if TYPE_CHECKING:
    from headrace.node.connection import Connection
    from headrace.server.connection_limits import Connections

HANDSHAKE_S_MAX = 10.0

# A handshake takes 0.4 to 2 ms of the loop: a burst of them must not keep the others waiting.
HANDSHAKES_PER_TURN = 4

# Each takes some 30 KB. A client answers within milliseconds; those that take longest are not missed.
UNFINISHED_MAX = 250

CIPHERTEXT_BYTES = 256 * 1024

# So much of a long answer is encrypted at a time. Memory for all of it would be new each time, and the kernel
# fills that with zeros first.
ENCRYPTED_BYTES = 64 * 1024

RECORD_BYTES = 16 * 1024  # of TLS, at the most

HANDSHAKE_RECORD = 0x16  # what TLS begins with
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI ")

# The end of OpenSSL's reason, and what it says about the client.
_REASONS = (
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client has no certificate, and ssl.client.auth=required"),
    ("ALERT_UNKNOWN_CA", "the client does not trust the authority that issued our certificate"),
    ("ALERT_BAD_CERTIFICATE", "the client does not accept our certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "the client does not accept our certificate"),
    ("ALERT_CERTIFICATE_EXPIRED", "our certificate has expired"),
    ("UNSUPPORTED_PROTOCOL", "the client has no version of TLS in ssl.enabled.protocols"),
    ("NO_SHARED_CIPHER", "client and broker have no cipher suite in common"),
)


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


class TlsListener:
    """What the connections of one listener share. Those that come later use a context that was replaced."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: TlsSettings, connections: "Connections"
    ) -> None:
        """CannotListen if a file cannot be used."""
        self.loop = loop
        self.settings = settings
        self.context, self.certificates = load_certificates(settings)
        self.connections = connections
        self.ciphertext = memoryview(bytearray(CIPHERTEXT_BYTES))
        self._left = HANDSHAKES_PER_TURN  # how many more there may be in this turn of the loop
        self._queue: deque[TlsTransport] = deque()
        self._unfinished: dict[TlsTransport, None] = {}  # whose client has to answer, the oldest first
        self._is_due = False

    def load(self) -> None:
        """CannotListen: a file cannot be used, and nothing has changed."""
        self.use(self.settings)

    def use(self, settings: TlsSettings | None) -> None:
        """The same with other settings."""
        assert settings is not None
        self.context, self.certificates = self._loaded(settings)
        self.settings = settings

    def check(self, settings: TlsSettings | None) -> None:
        """CannotListen: these settings could not be used."""
        assert settings is not None
        self._loaded(settings)

    def _loaded(self, settings: TlsSettings) -> Certificates:
        """CannotListen: they cannot be used, or are too different from the ones before."""
        loaded = load_certificates(settings)
        forbidden = forbidden_change(
            self.certificates,
            loaded.facts,
            dn=settings.allows_dn_changes,
            san=settings.allows_san_changes,
        )
        if forbidden is not None:
            raise CannotListen(f"{settings.names['ssl.keystore.location']}: {forbidden}")
        return loaded

    def transport(self, channel: SecuredChannel) -> "TlsTransport":
        return TlsTransport(self, channel)

    def wait_for(self, transport: "TlsTransport") -> None:
        """Its client has to go on with the handshake. If that holds for too many, the oldest one has to give
        way: clients that only begin must not take all memory, nor keep others out.
        """
        self._unfinished[transport] = None
        if len(self._unfinished) > UNFINISHED_MAX:
            next(iter(self._unfinished)).give_way()

    def waits_no_longer(self, transport: "TlsTransport") -> None:
        self._unfinished.pop(transport, None)

    def take_turn(self, transport: "TlsTransport") -> bool:
        """Whether it may go on with its handshake now; otherwise `shake_hands` is called in a later turn."""
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._next_turn)
        if self._left and not self._queue:
            self._left -= 1
            return True
        self._queue.append(transport)
        return False

    def _next_turn(self) -> None:
        self._is_due = False
        self._left = HANDSHAKES_PER_TURN
        while self._queue and self._left:
            self._left -= 1
            self._queue.popleft().shake_hands()
        if self._queue and not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._next_turn)

    def principal_of(self, certificate: bytes | None) -> str | None:
        """Of a client's certificate in DER, if it has sent one. LoginRefused if it gives no name."""
        if certificate is None:
            return None
        try:
            subject = subject_of_certificate(certificate)
        except InvalidDer as error:
            raise LoginRefused(f"the subject of the certificate cannot be read: {error}") from error
        return f"User:{self.settings.mapping.name(subject)}"


class TlsTransport(asyncio.BufferedProtocol):
    """To the socket's transport a protocol, to the channel a transport."""

    __slots__ = (
        "_channel",
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
        "_socket_transport",
        "_timer",
        "_tls",
    )

    def __init__(self, listener: TlsListener, channel: SecuredChannel) -> None:
        self._listener = listener
        self._channel = channel
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject  # when its handshake begins: it takes most of the memory
        self._read: Callable[[int, memoryview], int]
        self._socket_transport: asyncio.Transport
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
        return self._listener.ciphertext

    def buffer_updated(self, count: int) -> None:
        if self._is_over:
            return
        data = self._listener.ciphertext[:count]
        if self._is_open:
            self._incoming.write(data)
            self._deliver()
            return
        if not self._has_begun and data[0] != HANDSHAKE_RECORD:
            is_http = bytes(data[:4]) in _HTTP
            self._fail(
                "an HTTP client on a TLS listener"
                if is_http
                else "a client without TLS on a TLS listener: check security.protocol"
            )
            return
        self._has_begun = True
        self._listener.waits_no_longer(self)
        self._incoming.write(data)
        if self._is_paused:
            return  # a new connection that is to wait: it shakes hands when it is resumed
        if not self._is_queued and self._listener.take_turn(self):
            self.shake_hands()
        elif not self._is_queued:
            self._is_queued = True
            self._socket_transport.pause_reading()  # what comes meanwhile stays in the socket

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
            self._fail(_explain(error))
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

    def give_way(self) -> None:
        self._listener.waits_no_longer(self)
        self._fail(f"{UNFINISHED_MAX} later ones are not finished either")

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
            if filled < size and incoming.pending and filled:
                filled += self._read_more(view, filled)
            if self._outgoing.pending:  # a key update is answered
                self._send()
            if filled:
                channel.buffer_updated(filled)
            if filled < size:
                return

    def _read_more(self, view: memoryview, filled: int) -> int:
        """More records, behind those; how many bytes there were. librdkafka makes two records of a message:
        this is the hot loop of a producer: an exception at its end costs less than a question before each.
        """
        left = before = len(view) - filled
        read = self._read
        try:
            while left:
                count = read(left, view[-left:])
                if not count:
                    self._close_notify_came()
                    break
                left -= count
        except ssl.SSLError as error:
            self._read_failed(error)
        return before - left

    def _read_failed(self, error: ssl.SSLError) -> int:
        if isinstance(error, ssl.SSLZeroReturnError):
            self._close_notify_came()
        elif not isinstance(error, ssl.SSLWantReadError):
            self._channel.close(f"TLS failed: {_explain(error)}")
        return 0

    def _close_notify_came(self) -> None:
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

    # --- what a channel asks of its transport ------------------------------------------------------------

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
                view, start = memoryview(data), 0
                while start < len(view):
                    start += self._tls.write(view[start : start + ENCRYPTED_BYTES])
                    self._send()
        except ssl.SSLError as error:
            self._channel.close(f"TLS failed: {_explain(error)}")
            return
        self._send()

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
        self._is_over = True


def _explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    reason = error.reason or ""
    for ending, said in _REASONS:
        if reason.endswith(ending):
            return said
    return reason.replace("_", " ").lower() or str(error)
