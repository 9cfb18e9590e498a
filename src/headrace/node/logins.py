"""Logins of one node: what its SASL listeners and their mechanisms need, and what a login asks of the node.

`login.py` has the login of one connection, and `login_exchanges` one file per mechanism.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.security_image import SecurityImage
from headrace.machines.security.scram import MECHANISMS
from headrace.node.bearer_checks import BearerChecks
from headrace.node.connection import Connection
from headrace.node.listener_security import PLAIN, sasl_settings
from headrace.node.login import CheckedLogin, Login, RefusedLogin, Session
from headrace.node.login_exchanges import Exchange
from headrace.node.login_exchanges.plain import PlainExchange
from headrace.node.login_exchanges.scram import ScramExchange
from headrace.node.metrics import Metrics
from headrace.node.oauth_settings import OAUTHBEARER
from headrace.node.password_queue import PasswordQueue
from headrace.node.ports import Ports
from headrace.node.routes import Request
from headrace.node.scram_users import ScramUsers
from headrace.node.settings import Settings
from headrace.node.token_credentials import TokenCredentials
from headrace.node.token_requests import delegation_tokens, secret_key
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from headrace.protocol.notation import Data

if TYPE_CHECKING:
    from headrace.node.audit import Audit


class Logins:
    def __init__(
        self,
        settings: Settings,
        security: Callable[[], SecurityImage],
        bearer_checks: BearerChecks,
        rng: Randomness,
        ports: Ports,
        metrics: Metrics,
        now: Now,
        audit: "Audit | None" = None,
    ) -> None:
        """`security` returns what the metadata has now about users and tokens."""
        self._rng = rng
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._waiting = ports.waiting
        self._metrics = metrics
        self._audit = audit
        self.users = ScramUsers(security, rng)
        self._tokens: TokenCredentials | None = None
        if secret_key(settings.texts) is not None:
            tokens = delegation_tokens(settings.texts, lambda: security().tokens)
            self._tokens = TokenCredentials(tokens, ports.jobs, settings.metadata_log_dir)
        self._with_tokens: dict[str, set[Login]] = {}  # who is in, by the id of a delegation token
        self._password_checks = PasswordQueue(ports.jobs, settings.metadata_log_dir, "login")
        secured = [listener for listener in settings.served_listeners if listener.uses_sasl]
        self._listeners = {
            listener.name: sasl_settings(
                settings.texts,
                listener.name,
                is_encrypted=listener.uses_tls,
                is_loopback=listener.is_loopback,
            )
            for listener in secured
        }
        self._bearer_checks = {
            listener.name: bearer_checks.of(listener.name, now, is_loopback=listener.is_loopback)
            for listener in secured
            if OAUTHBEARER in self._listeners[listener.name].mechanisms
        }

    def meet(self, connection: Connection) -> None:
        """A client has come. On a SASL listener it has to log in first."""
        settings = self._listeners.get(connection.listener)
        if settings is not None:
            connection.login = Login(self, settings, connection)

    def committed(self, now: Now, image: ClusterImage, records: list[Data]) -> None:
        """Sessions of tokens that end earlier than they did end with them."""
        if not self._with_tokens:
            return
        for record in records:
            if isinstance(record, RemoveDelegationTokenRecord):
                ends_ms = now.wall_ms
            elif isinstance(record, DelegationTokenRecord):
                ends_ms = min(record.expiration_timestamp, record.max_timestamp)
            else:
                continue
            for login in tuple(self._with_tokens.get(record.token_id, ())):
                login.token_ends(now, ends_ms)

    # --- what a login asks for ---------------------------------------------------------------------------

    def exchange(self, connection: Connection, mechanism: str) -> Exchange:
        """For a login with a mechanism that the listener has."""
        listener = connection.listener
        if mechanism == PLAIN:
            passwords = self._listeners[listener].passwords
            return PlainExchange(passwords, self.users, self._password_checks, connection.address)
        if mechanism == OAUTHBEARER:
            from headrace.node.login_exchanges.oauthbearer import BearerExchange

            return BearerExchange(self._bearer_checks[listener])
        return ScramExchange(MECHANISMS[mechanism], self.users, self._tokens, self._rng)

    def entered(self, now: Now, connection: Connection, mechanism: str) -> None:
        self._metrics.logins += 1
        if self._audit is not None:
            self._audit.login(now, connection, mechanism)

    def refuse(
        self,
        connection: Connection,
        mechanism: str,
        user: str,
        reason: str,
        request: Request,
        response: Any,
        at: Instant,
    ) -> RefusedLogin:
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
        if self._audit is not None:
            self._audit.login_refused(request.now, connection, mechanism, user, reason)
        return RefusedLogin(self._waiting, request, response, at)

    def close(self, connection: Connection, reason: str) -> None:
        self._reports.close(connection, reason)

    def park(self, request: Request) -> CheckedLogin:
        """Until what the client has shown is checked."""
        return CheckedLogin(self._waiting, request)

    def answer(self, now: Now, parked: CheckedLogin, response: SaslAuthenticateResponse) -> None:
        self._waiting.answer(now, parked, response)

    def token_used(self, token_id: str, login: Login) -> None:
        self._with_tokens.setdefault(token_id, set()).add(login)

    def token_left(self, token_id: str, login: Login) -> None:
        """The client has gone, or has logged in again."""
        logins = self._with_tokens.get(token_id)
        if logins is not None:
            logins.discard(login)
            if not logins:
                del self._with_tokens[token_id]

    def begin_session(self, until: Instant, session: Session) -> None:
        self._deadlines.add(until, session)

    def session_was_cancelled(self) -> None:
        self._deadlines.cancelled()
