"""TLS of one connection as bytes in and bytes out, over two buffers in memory.

    begin --handshake--> open --close_notify or end--> closed

Ciphertext from the socket goes into `room()`, plaintext comes out of `read_into`; `sealed` gives what has to
be written, be it data or the handshake's own messages. What is said before the handshake is over waits. An
error of TLS is a `TlsFailed` that says whose certificate or setting is to blame.
"""

import ssl

from headrace.client.errors import TlsFailed, describe_peer
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
            raise TlsFailed(f"{host!r} is not a name that a certificate can have: {error}") from error

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


# X509_V_ERR_…: what is wrong with the broker's certificate, and what to do
_VERIFY: dict[int, tuple[str, str]] = {
    9: ("is not valid yet", "Check the clocks of this machine and of the broker."),
    10: ("has expired", "Give the broker a new certificate; if it has one, check this machine's clock."),
    23: ("was revoked", "Give the broker a new certificate."),
}
_UNTRUSTED = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})

# What the broker's alert says about us: the end of OpenSSL's reason, the sentence, the advice
_ALERTS: tuple[tuple[str, str, str], ...] = (
    (
        "ALERT_CERTIFICATE_REQUIRED",
        "the broker wants a certificate of ours",
        "Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location.",
    ),
    (
        "ALERT_UNKNOWN_CA",
        "the broker does not trust who issued our certificate",
        "Have it signed by an authority in the broker's truststore.",
    ),
    ("ALERT_CERTIFICATE_EXPIRED", "our certificate has expired", "Have a new one issued."),
    ("ALERT_CERTIFICATE_REVOKED", "our certificate was revoked", "Have a new one issued."),
    (
        "ALERT_CERTIFICATE_UNKNOWN",
        "the broker does not accept our certificate",
        "The broker's log says why; it may not trust who issued it.",
    ),
    (
        # Java's word for none at all, too
        "ALERT_BAD_CERTIFICATE",
        "the broker does not accept our certificate, or wants one",
        "If there is none, set ssl.keystore.location; if there is, the broker's log says why.",
    ),
    (
        "ALERT_PROTOCOL_VERSION",
        "the broker speaks none of our versions of TLS",
        "Let the broker speak TLS 1.2 or 1.3, or look at ssl.enabled.protocols.",
    ),
    (
        "ALERT_HANDSHAKE_FAILURE",
        "the broker refused the TLS handshake",
        "It may want a certificate of ours (ssl.keystore.location), or other ssl.cipher.suites.",
    ),
    (
        "ALERT_UNRECOGNIZED_NAME",
        "the broker does not answer to this host name",
        "Use the name that its certificate has.",
    ),
)

_NOT_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def explained(error: ssl.SSLError, host: str, first: bytes) -> TlsFailed:
    """An error of the stream to `host`; `first` are the peer's first bytes if nothing else has come yet."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(error, host)
    reason = error.reason or ""
    for ending, said, advice in _ALERTS:
        if reason.endswith(ending):
            return TlsFailed(f"{said} ({host})", advice=advice)
    if reason in _NOT_TLS and first:
        peer = describe_peer(first) or "something else"
        return TlsFailed(
            f"the peer at {host} answered with {peer}, not with TLS",
            advice="Check the port; for a plaintext listener set security.protocol to PLAINTEXT or "
            "SASL_PLAINTEXT.",
        )
    return TlsFailed(f"TLS with {host} failed: {reason.replace('_', ' ').lower() or error}")


def _certificate(error: ssl.SSLCertVerificationError, host: str) -> TlsFailed:
    whose = f"the certificate of {host}"
    if error.verify_code in _UNTRUSTED:
        return TlsFailed(
            f"{whose} is not trusted: {error.verify_message}",
            advice="Set ssl.ca.location (or ssl.truststore.location) to a PEM file with the authority that "
            "issued it.",
        )
    if error.verify_code in _OTHER_NAME:
        return TlsFailed(
            f"{whose} was issued for another name: {error.verify_message}",
            advice="Connect by a name in the certificate, or issue one that has this name as a subject "
            "alternative name; ssl.endpoint.identification.algorithm=none turns the check off.",
        )
    said, advice = _VERIFY.get(error.verify_code, (f"is not accepted: {error.verify_message}", ""))
    return TlsFailed(f"{whose} {said}", advice=advice)
