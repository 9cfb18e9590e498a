"""Tokens with which this node logs in at others: fetched in a thread, renewed before they expire.

The identity provider may be slow or down. Connections that need a token wait for it, the others go on, and
the loop never waits. There is at most one fetch at a time, and after a failure a pause (`LoginToken`).
"""

import asyncio
import threading
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import url2pathname

from headrace.base.randomness import Randomness
from headrace.client.errors import TokenUnavailable
from headrace.machines.security.json_web_tokens import TOKEN_BYTES_MAX
from headrace.machines.security.login_tokens import LoginToken
from headrace.node.token_logins import TokenLogin
from headrace.server.connection_limits import Connections

# What a connection is told: a token, or why there is none.
Then = Callable[[str | Exception], None]


class PeerTokens:
    def __init__(self, login: TokenLogin, rng: Randomness, connections: Connections) -> None:
        self._login = login
        self._token = LoginToken(login.refresh, rng)
        self._clock = connections.clock
        self._log = connections.log
        self._waiting: list[Then] = []  # one for each connection at the most
        self._is_fetching = False
        self._has_failed = False  # the last fetch, so that the next one is the timer's
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def take(self, then: Then) -> None:
        """`then` is called at once if there is a token."""
        value = self._token.current(self._clock.now())
        if value is not None:
            then(value)
            return
        self._waiting.append(then)
        if not self._has_failed:  # a token that expired too soon: the wall clock may have been set
            self._fetch()

    def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _fetch(self) -> None:
        if self._is_fetching or self._is_closed:
            return
        self._is_fetching = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._fetch_in_thread, args=(loop,), name="token", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more to give
            loop.call_soon(self._fetched, error)

    def _fetch_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        outcome: str | Exception
        try:
            outcome = fetched(self._login)
        except Exception as error:  # whatever it is: the connections must not wait for ever
            outcome = error
        try:
            loop.call_soon_threadsafe(self._fetched, outcome)
        except RuntimeError:
            pass  # the process stops, and the loop is closed

    def _fetched(self, outcome: str | Exception) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        now = self._clock.now()
        try:
            if isinstance(outcome, Exception):
                raise outcome
            self._token.came(now, outcome)
        except Exception as error:
            self._token.failed(now)
            self._has_failed = True
            reason = f"no token from {self._login.url}: {error or type(error).__name__}"
            outcome = TokenUnavailable(reason)
            self._log.sometimes(now.mono, "warning", "login_token_not_fetched", reason=reason)
        else:
            self._has_failed = False
            outcome = self._token.current(now) or TokenUnavailable("the token has expired")
        self._timer = asyncio.get_running_loop().call_later(
            max(0.0, self._token.next_at - now.mono), self._fetch
        )
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(outcome)


def fetched(login: TokenLogin) -> str:
    """Blocks. OSError, ValueError or TokenUnavailable says why there is no token."""
    parts = urlsplit(login.url)
    if parts.scheme == "file":
        with open(url2pathname(parts.path), encoding="ascii") as file:
            text = file.read(TOKEN_BYTES_MAX + 1)
        if len(text) > TOKEN_BYTES_MAX:
            raise ValueError(f"the file is longer than {TOKEN_BYTES_MAX} bytes")
        return text
    from headrace.client.security.oidc import ClientCredentials

    ask = ClientCredentials(login.url, login.client_id, login.client_secret, login.scope or None)
    return ask().value
