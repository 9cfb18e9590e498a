"""Logins on SASL listeners (KIP-43, KIP-152), and the sessions that they begin (KIP-368).

    mechanism --SaslHandshake--> exchange --SaslAuthenticate, once or more--> in --the session ends--> expired
                                    |                                          ^            |
                                 refused                                       +- exchange <+

A login is the first fast path of its connection until the client is in: it lets SaslHandshake, ApiVersions
and SaslAuthenticate through, and closes the connection at everything else. So the node asks for it where it
asks anyway, and a client that is in costs nothing more. A login that begins again, or a session that ends,
puts it back, and with that drops what was learned about the connection's requests.

A client that is refused is told so after a delay, and then the connection is closed. It is not told whether
the user or the password was wrong.
"""

from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.machines.security.errors import LoginRefused
from headrace.node.connection import Connection, FastPath
from headrace.node.effects import Parts
from headrace.node.listener_security import SaslSettings
from headrace.node.login_exchanges import Challenge, Entered, Exchange, Outcome
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.node.logins import Logins

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
BEFORE_LOGIN = (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)

FRAME_BYTES_MAX = 2**31 - 1

# Who is in may log in again this often, as in Kafka.
AGAIN_AFTER_S = 1.0

_api_key_at = Struct(">h").unpack_from


class State(Enum):
    MECHANISM = auto()  # the client has to say how it logs in
    EXCHANGE = auto()
    CHECKING = auto()  # of what the client has shown; that takes a while
    IN = auto()
    EXPIRED = auto()  # in, but it has to log in again
    REFUSED = auto()  # it is told in a moment


class Login:
    """Of one connection, and its gate: a fast path that serves nothing."""

    __slots__ = (
        "_connection",
        "_exchange",
        "_is_again",
        "_logins",
        "_mechanism",
        "_session",
        "_settings",
        "_since",
        "_token_id",
        "may_queue",
        "next",
        "state",
    )

    def __init__(self, logins: "Logins", settings: SaslSettings, connection: Connection) -> None:
        self._logins = logins
        self._settings = settings
        self._connection = connection
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._is_again = False  # the client was in before
        self._since = Instant(0.0)  # when it last began to log in again
        self._session: Session | None = None
        self._token_id: str | None = None  # of the delegation token that the client is in with
        self.may_queue = True
        self.next: FastPath | None = None
        self.state = State.MECHANISM
        self._close_gate()

    # --- the gate ----------------------------------------------------------------------------------------

    def _close_gate(self) -> None:
        self.next = None
        self._connection.fast_path = self
        self._connection.frame_bytes_max = self._settings.frame_bytes_max

    def _open_gate(self) -> None:
        self._connection.fast_path = None
        self._connection.frame_bytes_max = FRAME_BYTES_MAX

    def serve(self, now: Now, frame: memoryview) -> Parts | None:
        """None: the request may pass."""
        if self.state is State.REFUSED:
            return []
        (api_key,) = _api_key_at(frame)
        if len(frame) > self._settings.frame_bytes_max:
            why = f"a request of {len(frame)} bytes before the login exceeds sasl.server.max.receive.size"
        elif api_key not in BEFORE_LOGIN:
            why = (
                "the session has ended, and the client has not logged in again"
                if self.state is State.EXPIRED
                else f"API {api_key} before the login: check security.protocol"
            )
        else:
            return None
        self.state = State.REFUSED
        self._logins.close(self._connection, why)
        return []

    # --- the login ---------------------------------------------------------------------------------------

    def choose(self, request: Request) -> Any:
        """SaslHandshake."""
        offered = list(self._settings.mechanisms)
        wanted = request.body.mechanism
        if self.state is State.IN or self.state is State.EXPIRED:
            if self._is_again and request.now.mono - self._since < AGAIN_AFTER_S:
                return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            self._is_again = True
            self._since = request.now.mono
        elif self.state is not State.MECHANISM:
            response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            return self._refuse(request, response, "a second SaslHandshake")
        request.is_exempt = True
        if request.version == 0:
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, mechanisms=offered)
            return self._refuse(request, response, "SaslHandshake of version 0, without frames behind it")
        if wanted not in offered:
            unsupported = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            response = SaslHandshakeResponse(error_code=unsupported, mechanisms=offered)
            return self._refuse(request, response, f"mechanism {wanted[:50]!r} is not enabled")
        if self._is_again and wanted != self._mechanism:
            response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=offered)
            return self._refuse(request, response, "another mechanism than in the first login")
        self._close_gate()
        self.state = State.EXCHANGE
        self._mechanism = wanted
        self._exchange = self._logins.exchange(self._connection, wanted)
        return SaslHandshakeResponse(mechanisms=offered)

    def authenticate(self, request: Request) -> Any:
        """SaslAuthenticate."""
        if self.state is State.IN or self.state is State.EXPIRED:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        if self.state is not State.EXCHANGE:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received before SaslHandshake",
            )
            return self._refuse(request, response, "SaslAuthenticate out of turn")
        request.is_exempt = True
        assert self._exchange is not None
        parked: CheckedLogin | None = None

        def then(now: Now, outcome: Outcome | LoginRefused) -> None:
            assert parked is not None
            self._checked(now, parked, outcome)

        try:
            outcome = self._exchange.step(request.now, bytes(request.body.auth_bytes), then)
            if outcome is not None:
                return self._answer(request.now, outcome)
        except LoginRefused as refusal:
            return self._refuse(request, self._failure(refusal), str(refusal))
        self.state = State.CHECKING
        parked = self._logins.park(request)
        return parked

    def _checked(self, now: Now, parked: "CheckedLogin", outcome: Outcome | LoginRefused) -> None:
        if parked.is_done or self.state is not State.CHECKING:
            return  # the client has gone, or is being refused because it has not waited
        try:
            if isinstance(outcome, LoginRefused):
                raise outcome
            self.state = State.EXCHANGE
            self._logins.answer(now, parked, self._answer(now, outcome))
        except LoginRefused as refusal:
            parked.hand_over(self._refuse(parked.request, self._failure(refusal), str(refusal), now))

    def _answer(self, now: Now, outcome: Outcome) -> SaslAuthenticateResponse:
        """LoginRefused if the client was somebody else before."""
        if isinstance(outcome, Challenge):
            return SaslAuthenticateResponse(auth_bytes=outcome.message)
        return self._enter(now, outcome)

    def _enter(self, now: Now, entered: Entered) -> SaslAuthenticateResponse:
        principal = f"User:{entered.user}"
        if self._is_again and principal != self._connection.principal:
            raise LoginRefused("another user than in the first login")
        self._connection.principal = principal
        self._connection.with_token = entered.token_id is not None
        self._use_token(entered.token_id)
        self._logins.entered(now, self._connection, self._mechanism)
        self._exchange = None
        self.state = State.IN
        self._open_gate()
        self._end_session()
        lifetime_ms = self._session_ms(now, entered)
        if lifetime_ms is None:
            lifetime_ms = 0
        elif lifetime_ms == 0:
            self.session_ended()
        else:
            self._begin_session(now.after_ms(lifetime_ms))
        return SaslAuthenticateResponse(auth_bytes=entered.proof, session_lifetime_ms=lifetime_ms)

    def _session_ms(self, now: Now, entered: Entered) -> int | None:
        """None: without end. 0: it has ended, with a token that has just expired, which the clock skew
        allows; Kafka answers the same.
        """
        configured = self._settings.session_ms[self._mechanism] or None
        if entered.expires_ms is None:
            return configured
        left = max(0, entered.expires_ms - now.wall_ms)
        return left if configured is None else min(left, configured)

    def _failure(self, refusal: LoginRefused) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=refusal.told
            or "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}",
        )

    def _refuse(self, request: Request, response: Any, reason: str, now: Now | None = None) -> "RefusedLogin":
        self._close_gate()
        self.state = State.REFUSED
        user = ""
        if self._exchange is not None:
            user = self._exchange.user
            self._exchange.abandon()  # it may not have waited for an answer
            self._exchange = None
        at = (now or request.now).after_ms(self._settings.refusal_delay_ms)
        return self._logins.refuse(self._connection, self._mechanism, user, reason, request, response, at)

    def _use_token(self, token_id: str | None) -> None:
        if self._token_id is not None:
            self._logins.token_left(self._token_id, self)
        self._token_id = token_id
        if token_id is not None:
            self._logins.token_used(token_id, self)

    # --- the session -------------------------------------------------------------------------------------

    def session_ended(self) -> None:
        self._session = None
        if self.state is State.IN:
            self.state = State.EXPIRED
            self._close_gate()

    def _begin_session(self, until: Instant) -> None:
        self._session = Session(self, until)
        self._logins.begin_session(until, self._session)

    def token_ends(self, now: Now, ends_ms: int) -> None:
        """The delegation token has another end. An earlier one counts for the session, too."""
        until = now.after_ms(max(0, ends_ms - now.wall_ms))
        if self._session is not None and until < self._session.until:
            self._end_session()
            if until <= now.mono:
                self.session_ended()
                if self._connection.pending:
                    # a fetch may wait for minutes, and would be answered with what is written from now on
                    self._logins.close(self._connection, "the delegation token of its login has ended")
            else:
                self._begin_session(until)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.is_done = True
            self._session = None
            self._logins.session_was_cancelled()

    def forget(self) -> None:
        """The connection is closed. The cycle of the two is cut: the collector runs too rarely for it."""
        self._end_session()
        self._use_token(None)
        self.state = State.REFUSED
        if self._exchange is not None:
            self._exchange.abandon()
            self._exchange = None
        self._connection.login = None


class Session:
    """An entry in the heap of deadlines: when a session ends."""

    __slots__ = ("_login", "is_done", "until")

    def __init__(self, login: Login, until: Instant) -> None:
        self._login = login
        self.until = until
        self.is_done = False

    def expired(self, now: Now) -> None:
        self.is_done = True
        self._login.session_ended()


class CheckedLogin(Parked):
    """Waits for a thread, or for the keys of an identity provider."""

    __slots__ = ()

    def deadline(self) -> Instant | None:
        return None


class RefusedLogin(Parked):
    """Is answered after a delay, so that guessing takes long; then the connection is closed."""

    __slots__ = ("_at", "_response")

    def __init__(self, waiting: Waiting, request: Request, response: Any, at: Instant) -> None:
        super().__init__(waiting, request)
        self._response = response
        self._at = at

    def deadline(self) -> Instant | None:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return self._response if is_expired else None

    def expired(self, now: Now) -> None:
        super().expired(now)
        self.waiting.give_up(self.request.connection, "the login was refused")
