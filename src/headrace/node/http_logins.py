"""Logins by HTTP: a password (Basic), checked by the user's SCRAM credential, or a token (Bearer).

A request brings its login with it. What was proved by a password on a connection counts for its later
requests with the same header, until the user's credential changes. A token is checked each time.
"""

import hmac
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from headrace.base.time import Now
from headrace.machines.http.credentials import BearerToken, read_authorization
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.plain import PlainLogin
from headrace.machines.security.signing_keys import UnknownKey
from headrace.node.bearer_checks import BearerCheck, BearerChecks
from headrace.node.connection import Connection
from headrace.node.http_settings import is_bearer_set
from headrace.node.login_exchanges.plain import password_check
from headrace.node.password_check import PasswordCheck
from headrace.node.password_queue import PasswordQueue
from headrace.node.ports import Jobs
from headrace.node.scram_users import ScramUsers
from headrace.node.settings import Settings

BASIC: Final = "Basic"
BEARER: Final = "Bearer"


class Identity(NamedTuple):
    mechanism: str
    user: str  # who the client says it is; "" if that is not known
    refused: str | None = None  # why it is not believed, for the log


Identified = Callable[[Now, Identity], None]


class Proof:
    """A password that was right, and the credential that it was checked by."""

    __slots__ = ("credential", "digest", "mechanism", "user")

    def __init__(self, digest: bytes, check: PasswordCheck) -> None:
        self.digest = digest  # of the header, which has the password
        self.user = check.login.user
        self.mechanism = check.mechanism
        self.credential = check.credential


class HttpClient:
    """One connection."""

    __slots__ = ("certificate", "connection", "is_open", "proof", "rights", "take_back", "user")

    def __init__(self, connection: Connection, *, is_open: bool) -> None:
        self.connection = connection  # its principal is that of the request that is served
        self.is_open = is_open  # what it sends is not encrypted, and may come from another machine
        self.certificate: str | None = None  # the principal before any request: of a certificate, or nobody
        self.proof: Proof | None = None
        self.take_back: Callable[[], None] | None = None  # the check of its last request, which waits
        self.user = ""  # the last one that was let in
        self.rights: object | None = None  # with which the head of its request was accepted


class HttpLogins:
    """Of one node."""

    def __init__(
        self, settings: Settings, users: ScramUsers, bearer_checks: BearerChecks, jobs: Jobs
    ) -> None:
        self._users = users
        self._bearer_checks = bearer_checks
        self._checks = PasswordQueue(jobs, settings.metadata_log_dir, "http-login")
        self._bearer = {
            one.name: one for one in settings.http.listeners if is_bearer_set(one, settings.texts)
        }

    def takes_tokens(self, listener: str) -> bool:
        return listener in self._bearer

    def identify(self, now: Now, client: HttpClient, header: str, then: Identified) -> None:
        """`then` is called now or later, once."""
        if self._is_proved(client, header):
            assert client.proof is not None
            then(now, Identity(BASIC, client.proof.user))
            return
        client.proof = None
        try:
            login = read_authorization(header)
        except LoginRefused as refused:
            then(now, Identity("HTTP", "", str(refused)))
            return
        if isinstance(login, BearerToken):
            self._check_token(now, client, login, then)
        else:
            self._check_password(now, client, login, header, then)

    # --- passwords -----------------------------------------------------------------------------------------

    def _check_password(
        self, now: Now, client: HttpClient, login: PlainLogin, header: str, then: Identified
    ) -> None:
        users = self._users
        check = password_check(users, login)

        def checked(now: Now, refused: str | None) -> None:
            client.take_back = None
            # the credential may have been changed meanwhile
            if refused is None and users.credential(login.user, check.mechanism) != check.credential:
                refused = "the password was changed"
            if refused is None:
                client.proof = Proof(self._digest(header), check)
            then(now, Identity(BASIC, login.user, refused))

        try:
            waiting = self._checks.add(now, client.connection.address, check, checked)
            client.take_back = partial(self._checks.drop, waiting)
        except LoginRefused as refusal:
            then(now, Identity(BASIC, login.user, str(refusal)))

    def forget(self, client: HttpClient) -> None:
        """It has gone: its password or token need not be checked any more."""
        if client.take_back is not None:
            client.take_back()
            client.take_back = None

    def _is_proved(self, client: HttpClient, header: str) -> bool:
        proof = client.proof
        if proof is None or not hmac.compare_digest(proof.digest, self._digest(header)):
            return False
        return self._users.credential(proof.user, proof.mechanism) == proof.credential

    def _digest(self, header: str) -> bytes:
        return hmac.digest(self._users.secret, header.encode(), "sha256")

    # --- tokens --------------------------------------------------------------------------------------------

    def _check_token(self, now: Now, client: HttpClient, login: BearerToken, then: Identified) -> None:
        listener = self._bearer.get(client.connection.listener)
        if listener is None:
            then(now, Identity(BEARER, "", "tokens are not accepted"))
            return
        check = self._bearer_checks.of(listener.name, now, is_loopback=listener.is_loopback)
        try:
            identity = Identity(BEARER, check.check(login.token, now).name)
        except LoginRefused as refused:
            identity = Identity(BEARER, "", str(refused))
            if isinstance(refused, UnknownKey):

                def again(later: Now) -> None:
                    client.take_back = None
                    then(later, _checked_again(check, login, later))

                client.take_back = check.wait(now, login.token, again)
                if client.take_back is not None:
                    return
        then(now, identity)


def _checked_again(check: BearerCheck, login: BearerToken, now: Now) -> Identity:
    """With the keys that were fetched meanwhile."""
    try:
        return Identity(BEARER, check.check(login.token, now).name)
    except LoginRefused as refused:
        return Identity(BEARER, "", str(refused))
