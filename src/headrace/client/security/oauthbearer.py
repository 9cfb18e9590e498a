"""OAUTHBEARER (RFC 7628): the mechanism, and the tokens of one client.

A token is fetched when a connection needs one, and reused while it is fresh. Fetching takes time, so the
shell does it in another thread or task and reports the result; until then `take` returns None, and the
connection asks again when the shell has been woken.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.base.randomness import Randomness
from headrace.base.time import Instant
from headrace.client.errors import AuthenticationFailed, InvalidInput, TokenUnavailable
from headrace.client.security.sasl import Token

# What a user's function may give; one of asyncio may give it later.
TokenProvider = Callable[[], Any]

_SEPARATOR = "\x01"
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750 §2.1
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")


@dataclass(slots=True, frozen=True)
class OAuthBearer:
    provider: TokenProvider
    extensions: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default="OAUTHBEARER", init=False)
    needs_token: bool = field(default=True, init=False)
    user: str = field(default="", init=False)

    def exchange(self, rng: Randomness, token: Token | None) -> "BearerExchange":
        assert token is not None
        return BearerExchange(token.value, {**self.extensions, **token.extensions})


class BearerExchange:
    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        said = [f"auth=Bearer {token}", *(f"{key}={value}" for key, value in extensions.items())]
        self._message = f"n,,{_SEPARATOR}{_SEPARATOR.join(said)}{_SEPARATOR}{_SEPARATOR}".encode()
        self._reason = b""  # why the broker refuses, in JSON

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        """An empty answer is a welcome; a reason for refusal wants to be acknowledged (RFC 7628 §3.2.3),
        and after that the broker has only an error left to say.
        """
        if self._reason:
            raise AuthenticationFailed(f"the broker refused the token: {self._reason[:500]!r}")
        if not challenge:
            return None
        self._reason = challenge
        return _SEPARATOR.encode()


def token_from(given: object) -> Token:
    """A token from what a provider returned: a `Token`, or its text alone."""
    token = Token(given) if isinstance(given, str) else given
    if not isinstance(token, Token):
        raise InvalidInput(
            f"oauth_token_provider returned a {type(given).__name__}: must be a str or a Token"
        )
    if not _TOKEN.fullmatch(token.value):
        raise InvalidInput("the OAuth token has characters that are not allowed in a bearer token")
    check_extensions(token.extensions)
    return token


def check_extensions(extensions: Mapping[str, str]) -> None:
    for key, value in extensions.items():
        if key == "auth" or not _KEY.fullmatch(key):
            raise InvalidInput(
                f"{key!r} cannot be the name of a SASL extension: use letters only, and not auth"
            )
        if not _VALUE.fullmatch(value):
            raise InvalidInput(f"the SASL extension {key} has characters that cannot be sent")


FRESH_SHARE = 0.8  # of a token's lifetime: behind that, a connection that is made now would soon need another

# Longer than a connection waits for a token: one that was not taken by then was wanted by nobody.
ABANDONED_S = 30.0


class Tokens:
    """`came` and `failed` may be called from another thread than `take`."""

    def __init__(self, fetch: Callable[[], None]) -> None:
        """`fetch` begins to fetch a token, and returns at once."""
        self._fetch = fetch
        self._is_fetching = False
        self._began_at = Instant(0.0)  # when the last one was asked for: a token's time begins no earlier
        self._outcomes: deque[Token | TokenUnavailable] = deque()
        self._kept: Token | None = None
        self._fresh_until = Instant(0.0)

    def take(self, now: Instant) -> Token | None:
        """A token, or None if it is yet to come; TokenUnavailable if it did not."""
        if self._kept is not None and now < self._fresh_until:
            return self._kept
        if not self._outcomes:
            self._begin(now)
            return None
        self._is_fetching = False
        outcome = self._outcomes.popleft()
        if isinstance(outcome, TokenUnavailable):
            raise outcome
        if outcome.lifetime_s is not None:
            # it may have come long ago, for a connection that did not wait for it
            self._fresh_until = Instant(self._began_at + outcome.lifetime_s * FRESH_SHARE)
            if now >= self._fresh_until and now >= self._began_at + ABANDONED_S:
                self._begin(now)
                return None
            self._kept = outcome
        return outcome

    def _begin(self, now: Instant) -> None:
        if not self._is_fetching:
            self._is_fetching = True
            self._began_at = now
            self._fetch()

    def came(self, given: object) -> None:
        """What the provider gave."""
        try:
            self._outcomes.append(token_from(given))
        except InvalidInput as error:
            self.failed(error)

    def failed(self, cause: Exception) -> None:
        if isinstance(cause, TokenUnavailable):
            self._outcomes.append(cause)
            return
        error = TokenUnavailable(f"no OAuth token: {cause or type(cause).__name__}")
        error.__cause__ = cause
        self._outcomes.append(error)
