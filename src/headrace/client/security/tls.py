"""TLS of one connection as bytes in and bytes out, over two buffers in memory.

    begin --handshake--> open --close_notify or end--> closed

Ciphertext from the socket goes into `room()`, plaintext comes out of `read_into`; `sealed` gives what has to
be written, be it data or the handshake's own messages. What is said before the handshake is over waits. An
error of TLS is a `TlsFailed` that says whose certificate or setting is to blame.
"""

import ssl

from headrace.client.errors import TlsFailed
from headrace.client.security.tls_errors import explained
from headrace.protocol.parts import Part

# Room for what comes from the socket: some of TLS's largest records, 16 KiB each.
CIPHERTEXT_BYTES = 64 * 1024


class Tls:
    """What all connections of a client share: whom we trust and who we are."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def stream(self, host: str) -> "TlsStream":
        return TlsStream(self._context, host)


class TlsStream:
    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.is_open = False
        self.is_closed = False  # the peer will say nothing more
        self._host = host
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._buffer = bytearray(CIPHERTEXT_BYTES)
        self._first = b""  # the first bytes of the peer: they tell a stranger's name
        self._early: list[Part] = []
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        except ValueError as error:
            raise TlsFailed(f"{host!r} is no name that a certificate could have: {error}") from error

    def begin(self) -> None:
        self._shake_hands()

    def sealed(self, parts: list[Part]) -> list[Part]:
        """What to write to the socket now, these parts included if the handshake is over."""
        if not self.is_open:
            self._early += parts
        elif parts:
            self._seal(parts)
        return [self._outgoing.read()] if self._outgoing.pending else []

    def room(self) -> memoryview:
        """Where ciphertext goes."""
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        """`count` bytes were put into `room()`."""
        data = memoryview(self._buffer)[:count]
        if len(self._first) < 8 and not self.is_open:
            self._first += bytes(data[:8])
        self._incoming.write(data)
        if not self.is_open:
            self._shake_hands()

    def read_into(self, room: memoryview) -> int:
        """Takes plaintext out; 0 when there is no more for now."""
        if not self.is_open or self.is_closed:
            return 0
        try:
            # typeshed does not know that with a buffer it is the count
            count: int = self._tls.read(len(room), room)  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            raise explained(error, self._host, b"") from error
        self.is_closed = count == 0
        return count

    def end(self) -> None:
        """Says goodbye: close_notify is in what `sealed` gives next."""
        if not self.is_open:
            return
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # the peer's own close_notify is not waited for; one that broke TLS gets no goodbye
            self.is_closed = True

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise explained(error, self._host, self._first) from error
        self.is_open = True
        early, self._early = self._early, []
        if early:
            self._seal(early)

    def _seal(self, parts: list[Part]) -> None:
        # joined, since each write makes a record of its own
        data = b"".join(parts)  # type: ignore[arg-type]  # clients send bytes
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise explained(error, self._host, b"") from error
