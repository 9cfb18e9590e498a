"""OAUTHBEARER (RFC 7628): a token that somebody else gave us, shown to the broker."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.base.dice import Dice
from headrace.client.errors import AuthenticationFailed, InvalidInput
from headrace.client.security.mechanism import Token

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

    def exchange(self, dice: Dice, token: Token | None) -> "BearerExchange":
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
        raise InvalidInput(f"oauth_token_provider gave a {type(given).__name__}, not a str or a Token")
    if not _TOKEN.fullmatch(token.value):
        raise InvalidInput("the OAuth token has characters that no bearer token has")
    check_extensions(token.extensions)
    return token


def check_extensions(extensions: Mapping[str, str]) -> None:
    for key, value in extensions.items():
        if key == "auth" or not _KEY.fullmatch(key):
            raise InvalidInput(f"a SASL extension cannot be called {key!r}; letters only, and not auth")
        if not _VALUE.fullmatch(value):
            raise InvalidInput(f"the SASL extension {key} has characters that cannot be sent")
