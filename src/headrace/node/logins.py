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

import hmac
from collections.abc import Callable, Mapping
from enum import Enum, auto
from struct import Struct
from typing import Any

from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import PlainLogin, check_password, read_plain
from headrace.machines.security.scram import MECHANISMS, SHA_256, SHA_512, Credential, Mechanism, ScramLogin
from headrace.node.connection import Connection, FastPath
from headrace.node.effects import Parts
from headrace.node.listener_security import PLAIN, SaslSettings, sasl_settings
from headrace.node.metrics import Metrics
from headrace.node.password_check import PasswordCheck
from headrace.node.ports import Ports
from headrace.node.routes import Request
from headrace.node.settings import Settings
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
BEFORE_LOGIN = (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)

FRAME_BYTES_MAX = 2**31 - 1

# Who is in may log in again this often, as in Kafka.
AGAIN_AFTER_S = 1.0

# Passwords are checked in so many threads at the most: those who wait for an fsync need some, too.
CHECKS_AT_ONCE = 2

# By user, and the id of the mechanism.
Credentials = Mapping[tuple[str, int], Credential]

# Takes the result of a check: None, or why the password is refused.
Checked = Callable[[Now, "CheckedPassword", object], None]

_api_key_at = Struct(">h").unpack_from


class State(Enum):
    MECHANISM = auto()  # the client has to say how it logs in
    EXCHANGE = auto()
    CHECKING = auto()  # of a password, in a thread
    IN = auto()
    EXPIRED = auto()  # in, but it has to log in again
    REFUSED = auto()  # it is told in a moment


class Logins:
    """Of one node."""

    def __init__(
        self,
        settings: Settings,
        cluster_id: str,
        credentials: Callable[[], Credentials],
        rng: Randomness,
        ports: Ports,
        metrics: Metrics,
    ) -> None:
        """`credentials` returns those of all users, as they are now."""
        self.rng = rng
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._waiting = ports.waiting
        self._metrics = metrics
        self._directory = settings.metadata_log_dir
        # the same on all nodes: salts that differ would tell which users do not exist
        self.secret = hmac.digest(cluster_id.encode(), b"credentials of users that do not exist", "sha256")
        self.credentials = credentials
        self._first_users: dict[int, tuple[Credentials, int, str | None]] = {}  # by id of the mechanism
        self._listeners = {
            listener.name: sasl_settings(settings.texts, listener.name, is_open=False)
            for listener in settings.served_listeners
            if listener.uses_sasl
        }

    def meet(self, connection: Connection) -> None:
        """A client has come. On a SASL listener it has to log in first."""
        settings = self._listeners.get(connection.listener)
        if settings is not None:
            connection.login = Login(self, settings, connection)

    def like(self, mechanism: Mechanism) -> Credential | None:
        """A credential of the mechanism that those of unknown users look like: that of the first user."""
        credentials = self.credentials()
        kept = self._first_users.get(mechanism.id)
        if kept is None or kept[0] is not credentials or kept[1] != len(credentials):
            users = (user for user, number in credentials if number == mechanism.id)
            kept = self._first_users[mechanism.id] = credentials, len(credentials), min(users, default=None)
        return None if kept[2] is None else credentials.get((kept[2], mechanism.id))

    def credential(self, user: str, mechanism: Mechanism) -> Credential | None:
        return self.credentials().get((user, mechanism.id))

    # --- what a login asks for ---------------------------------------------------------------------------

    def entered(self) -> None:
        self._metrics.logins += 1

    def refuse(
        self,
        connection: Connection,
        mechanism: str,
        reason: str,
        request: Request,
        response: Any,
        at: Instant,
    ) -> "RefusedLogin":
        """The answer leaves then, and the connection is closed."""
        self._metrics.logins_refused += 1
        self._reports.report(
            "warning",
            "login_refused",
            address=connection.address,
            listener=connection.listener,
            mechanism=mechanism,
            reason=reason,
        )
        return RefusedLogin(self._waiting, request, response, at)

    def close(self, connection: Connection, reason: str) -> None:
        self._reports.close(connection, reason)

    def check(self, request: Request, login: PlainLogin, then: "Checked") -> "CheckedPassword":
        """Checks a password by the user's stronger credential; of a user that does not exist, by one like
        those of others.
        """
        known = [one for one in (SHA_512, SHA_256) if self.credential(login.user, one) is not None]
        usual = SHA_256 if self.like(SHA_512) is None else SHA_512
        mechanism = known[0] if known else usual
        credential = self.credential(login.user, mechanism)
        check = PasswordCheck(login, mechanism, credential, self.secret, self.like(mechanism))
        parked = CheckedPassword(self._waiting, request)
        queue = f"login-{request.connection.id % CHECKS_AT_ONCE}"
        self._jobs.run(self._directory, queue, check, lambda now, result: then(now, parked, result))
        return parked

    def answer(self, now: Now, parked: "CheckedPassword", response: SaslAuthenticateResponse) -> None:
        self._waiting.answer(now, parked, response)

    def begin_session(self, until: Instant, session: "Session") -> None:
        self._deadlines.add(until, session)

    def session_was_cancelled(self) -> None:
        self._deadlines.cancelled()


class Login:
    """Of one connection, and its gate: a fast path that serves nothing."""

    __slots__ = (
        "_connection",
        "_is_again",
        "_logins",
        "_mechanism",
        "_scram",
        "_scram_user",
        "_session",
        "_settings",
        "_since",
        "may_queue",
        "next",
        "state",
    )

    def __init__(self, logins: Logins, settings: SaslSettings, connection: Connection) -> None:
        self._logins = logins
        self._settings = settings
        self._connection = connection
        self._mechanism = ""
        self._scram: ScramLogin | None = None
        self._scram_user = ""
        self._is_again = False  # the client was in before
        self._since = Instant(0.0)  # when it last began to log in again
        self._session: Session | None = None
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
        self._scram = None
        if wanted in MECHANISMS:
            self._scram = ScramLogin(MECHANISMS[wanted], self._logins.rng, self._logins.secret)
            self._scram_user = ""
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
        message = bytes(request.body.auth_bytes)
        try:
            return self._plain(request, message) if self._mechanism == PLAIN else self._step(request, message)
        except LoginRefused as refusal:
            return self._refuse(request, self._failure(), str(refusal))

    def _step(self, request: Request, message: bytes) -> Any:
        """One of SCRAM's two."""
        scram = self._scram
        assert scram is not None
        if not self._scram_user:
            first = scram.read_first(message)
            mechanism = MECHANISMS[self._mechanism]
            self._scram_user = first.user
            # the name of a delegation token is not that of a user
            known = None if first.is_token else self._logins.credential(first.user, mechanism)
            challenge = scram.challenge(known, self._logins.like(mechanism))
            return SaslAuthenticateResponse(auth_bytes=challenge)
        return self._enter(request.now, self._scram_user, scram.finish(message))

    def _plain(self, request: Request, message: bytes) -> Any:
        login = read_plain(message)
        logins = self._logins
        if self._settings.passwords:
            check_password(login, self._settings.passwords, logins.secret)
            return self._enter(request.now, login.user)
        self.state = State.CHECKING

        def checked(now: Now, parked: CheckedPassword, result: object) -> None:
            self._checked(now, parked, login.user, result)

        return logins.check(request, login, checked)

    def _checked(self, now: Now, parked: "CheckedPassword", user: str, result: object) -> None:
        """`result`: None, or why it is refused."""
        if parked.is_done:
            return  # the client has gone
        if result is None:
            try:
                self._logins.answer(now, parked, self._enter(now, user))
                return
            except LoginRefused as refusal:
                result = refusal
        parked.hand_over(self._refuse(parked.request, self._failure(), str(result), now))

    def _enter(self, now: Now, user: str, proof: bytes = b"") -> SaslAuthenticateResponse:
        """The client is who it says it is. LoginRefused if it was somebody else before."""
        principal = f"User:{user}"
        if self._is_again and principal != self._connection.principal:
            raise LoginRefused("another user than in the first login")
        self._connection.principal = principal
        self._logins.entered()
        self._scram = None
        self.state = State.IN
        self._open_gate()
        lifetime_ms = self._settings.session_ms[self._mechanism]
        self._end_session()
        if lifetime_ms:
            self._session = Session(self)
            self._logins.begin_session(now.after_ms(lifetime_ms), self._session)
        return SaslAuthenticateResponse(auth_bytes=proof, session_lifetime_ms=lifetime_ms)

    def _failure(self) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}",
        )

    def _refuse(self, request: Request, response: Any, reason: str, now: Now | None = None) -> "RefusedLogin":
        self._close_gate()
        self.state = State.REFUSED
        self._scram = None
        at = (now or request.now).after_ms(self._settings.refusal_delay_ms)
        return self._logins.refuse(self._connection, self._mechanism, reason, request, response, at)

    # --- the session -------------------------------------------------------------------------------------

    def session_ended(self) -> None:
        self._session = None
        if self.state is State.IN:
            self.state = State.EXPIRED
            self._close_gate()

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.is_done = True
            self._session = None
            self._logins.session_was_cancelled()

    def forget(self) -> None:
        """The connection is closed. The cycle of the two is cut: the collector runs too rarely for it."""
        self._end_session()
        self.state = State.REFUSED
        self._connection.login = None


class Session:
    """An entry in the heap of deadlines: when a session ends."""

    __slots__ = ("_login", "is_done")

    def __init__(self, login: Login) -> None:
        self._login = login
        self.is_done = False

    def expired(self, now: Now) -> None:
        self.is_done = True
        self._login.session_ended()


class CheckedPassword(Parked):
    """Waits for a thread."""

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
