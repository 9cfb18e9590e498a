"""Security of connections to other nodes: certificates and logins, and what happens when a peer refuses.

A refused login is reported, and the peer is left alone for a while, longer each time: another try would be
refused as well until somebody changes something. A peer whose process has ended refuses the connection
itself, before TLS and login, and is not waited for.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.base.randomness import Randomness
from headrace.client.security.tls import TlsStream
from headrace.node.listener_security import PLAIN, TlsSettings
from headrace.node.node_security import NodeSecurity, OwnLogin, to_brokers, to_controllers
from headrace.node.peers import BROKERS, CLIENT_ID_PREFIX, CONTROLLERS, DIALLED_BY_TLS, Peer
from headrace.node.settings import Settings
from headrace.node.token_logins import TokenLogin
from headrace.server.connection_limits import Connections
from headrace.server.peer_login import PeerLogin
from headrace.server.tls_context import dialling_context, outgoing_context

if TYPE_CHECKING:
    from headrace.client.security.sasl import Mechanism
    from headrace.server.peer_tokens import PeerTokens

HOLD_S_MIN: Final = 0.1
HOLD_S_MAX: Final = 2.0


class Way:
    """What connections to the same kind of listener share. Those that are opened later use a context that
    was replaced.
    """

    def __init__(
        self, tls: TlsSettings | None, login: OwnLogin | TokenLogin | None, *, is_dial: bool = False
    ) -> None:
        """CannotListen if a file cannot be used."""
        self.settings = tls
        self.login = login
        self.mechanism = None if login is None else _mechanism(login)
        self._has_tls = tls is not None or is_dial
        self._is_dial = is_dial
        self._context: ssl.SSLContext | None = None
        self.load()

    def load(self) -> None:
        """CannotListen: a file cannot be used, and nothing has changed."""
        self.use(self.settings)

    def use(self, settings: TlsSettings | None) -> None:
        """The same with other settings."""
        if self._is_dial:
            self._context = dialling_context(settings)
        elif settings is not None:
            self._context = outgoing_context(settings)
        self.settings = settings

    def check(self, settings: TlsSettings | None) -> None:
        """CannotListen: these settings could not be used."""
        if settings is not None:
            outgoing_context(settings)

    def stream(self, host: str) -> TlsStream | None:
        """TlsFailed: no certificate can have this name."""
        return None if self._context is None else TlsStream(self._context, host)


def _mechanism(login: OwnLogin | TokenLogin) -> "Mechanism":
    from headrace.client.security.sasl import Plain, Scram

    if isinstance(login, TokenLogin):
        from headrace.client.security.oauthbearer import OAuthBearer

        return OAuthBearer(str)  # the tokens come by `PeerTokens`
    if login.mechanism == PLAIN:
        return Plain(login.user, login.password)
    return Scram(login.mechanism, login.user, login.password)


class PeerSecurity:
    """Of all connections to other nodes."""

    def __init__(
        self, node_id: int, ways: Mapping[str, Way], rng: Randomness, connections: Connections
    ) -> None:
        self.ways = ways  # by `Peer.listener`; those that are not there have neither TLS nor a login
        self._client_id = f"{CLIENT_ID_PREFIX}{node_id}"
        self._rng = rng
        self._connections = connections
        self._clock = connections.clock
        self._log = connections.log
        # by node and listener: until when, and how long it was
        self._holds: dict[tuple[int, str], tuple[float, float]] = {}
        self._tokens: dict[TokenLogin, PeerTokens] = {}

    def way(self, peer: Peer) -> Way | None:
        return self.ways.get(peer.listener)

    def log_in(self, way: Way, then: Callable[[PeerLogin | Exception], None]) -> None:
        """`then` gets a login that can begin, at once or when there is a token; or why there is none."""
        mechanism = way.mechanism
        assert mechanism is not None
        if not isinstance(way.login, TokenLogin):
            then(PeerLogin(mechanism, self._rng, self._client_id))
            return
        from headrace.client.security.sasl import Token

        def took(outcome: str | Exception) -> None:
            if isinstance(outcome, str):
                then(PeerLogin(mechanism, self._rng, self._client_id, Token(outcome)))
            else:
                then(outcome)

        self._tokens_of(way.login).take(took)

    def _tokens_of(self, login: TokenLogin) -> "PeerTokens":
        """Ways with the same settings share them."""
        found = self._tokens.get(login)
        if found is None:
            from headrace.server.peer_tokens import PeerTokens

            found = self._tokens[login] = PeerTokens(login, self._rng, self._connections)
        return found

    def close(self) -> None:
        for tokens in self._tokens.values():
            tokens.close()

    def delay_s(self, peer: Peer) -> float:
        """How long the peer is left alone from now on."""
        until, _ = self._holds.get((peer.id, peer.listener), (0.0, 0.0))
        return max(0.0, until - self._clock.now().mono)

    def was_let_in(self, peer: Peer) -> None:
        self._holds.pop((peer.id, peer.listener), None)

    def was_refused(self, peer: Peer, reason: str) -> None:
        """TLS or the login failed, for a reason that stays."""
        if peer.listener == DIALLED_BY_TLS:
            return  # a dial is never held: it has to find out quickly whether the peer has ended
        _, last_s = self._holds.get((peer.id, peer.listener), (0.0, 0.0))
        hold_s = min(HOLD_S_MAX, max(HOLD_S_MIN, 2 * last_s))
        self._holds[peer.id, peer.listener] = self._clock.now().mono + hold_s, hold_s
        self._report(peer, reason)

    def was_cut(self, peer: Peer, reason: str) -> None:
        """The connection broke before we were let in: the peer may have ended. It is not held."""
        if peer.listener != DIALLED_BY_TLS:
            self._report(peer, reason)

    def _report(self, peer: Peer, reason: str) -> None:
        self._connections.peer_logins_failed += 1
        self._log.sometimes(
            self._clock.now().mono,
            "warning",
            "peer_login_failed",
            node=peer.id,
            address=f"{peer.host}:{peer.port}",
            listener=peer.listener,
            reason=reason,
        )


def ways_of(settings: Settings) -> dict[str, Way]:
    """Of this node's settings. CannotListen if a file cannot be used."""
    return {
        listener: Way(security.tls, security.login, is_dial=listener == DIALLED_BY_TLS)
        for listener, security in securities_of(settings).items()
    }


def securities_of(settings: Settings) -> dict[str, NodeSecurity]:
    """By `Peer.listener`; empty if this node reaches all others by plaintext."""
    if not settings.quorum_voters:
        return {}
    is_broker = "broker" in settings.process_roles
    brokers = to_brokers(settings) if is_broker else None
    controllers = to_controllers(settings)
    found = {
        listener: security
        for listener, security in ((BROKERS, brokers), (CONTROLLERS, controllers))
        if security is not None
    }
    own = next((one.tls for one in found.values() if one.tls is not None), None)
    if own is not None or not is_broker:  # brokers may have TLS, and a controller alone has not
        found[DIALLED_BY_TLS] = NodeSecurity(own, None)
    return found


def tls_of(settings: Settings, listener: str) -> TlsSettings | None:
    """Of connections to a kind of listener."""
    return securities_of(settings)[listener].tls
