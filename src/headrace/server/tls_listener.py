"""What the TLS connections of one listener share: the certificates of now, the buffer that ciphertext is
received into, and the turns of handshakes.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from headrace.machines.security.certificates import forbidden_change
from headrace.machines.security.der import InvalidDer
from headrace.machines.security.distinguished_names import subject_of_certificate
from headrace.machines.security.errors import LoginRefused
from headrace.node.listener_security import TlsSettings
from headrace.server.listeners import CannotListen
from headrace.server.tls import SecuredChannel, TlsTransport
from headrace.server.tls_context import Certificates, load_certificates

if TYPE_CHECKING:
    from headrace.server.connection_limits import Connections

# A handshake takes 0.4 to 2 ms of the loop: a burst of them must not keep the others waiting.
HANDSHAKES_PER_TURN = 4

# Each takes some 30 KB. A client answers within milliseconds; those that take longest are not missed.
UNFINISHED_MAX = 250

CIPHERTEXT_BYTES = 256 * 1024


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

    def transport(self, channel: SecuredChannel) -> TlsTransport:
        return TlsTransport(self, channel)

    def wait_for(self, transport: TlsTransport) -> None:
        """Its client has to go on with the handshake. If that holds for too many, the oldest one has to give
        way: clients that only begin must not take all memory, nor keep others out.
        """
        self._unfinished[transport] = None
        if len(self._unfinished) > UNFINISHED_MAX:
            next(iter(self._unfinished)).give_way(f"{UNFINISHED_MAX} later ones are not finished either")

    def waits_no_longer(self, transport: TlsTransport) -> None:
        self._unfinished.pop(transport, None)

    def take_turn(self, transport: TlsTransport) -> bool:
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
