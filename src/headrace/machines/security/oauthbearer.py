"""OAUTHBEARER (RFC 7628): the client's message, the broker's answers, and the checks of a token's claims.

    read(message) → accept(principal)                      the client is logged in
                  → refuse(status) → the client's reply    always a refusal

The signature of a token is checked elsewhere, before its claims count for anything. A refusal first tells the
client why, in JSON, and after its acknowledgement the login fails. The text of a token is never printed.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.json_web_tokens import TOKEN_BYTES_MAX
from headrace.machines.security.scram import unescape_name

# Before anything is parsed: a token, and some extensions.
MESSAGE_BYTES_MAX = TOKEN_BYTES_MAX + 4096

EXTENSIONS_MAX = 20  # Kafka's own clients send three at the most

# Names of owners go to logs, rules and messages.
NAME_CHARACTERS_MAX = 1000

SEPARATOR: Final = "\x01"

# What Java's trim() takes away, and Kafka from names. Python's strip() takes more: whoever may choose a name
# with a space of another alphabet at its end would be somebody else.
_BLANKS: Final = "".join(map(chr, range(0x21)))

_HEADER = re.compile(r"[ny],(?:a=([^,]+))?,")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH = re.compile(r"([A-Za-z]+) +([A-Za-z0-9\-._~+/]+=*)")  # RFC 6750 §2.1


@dataclass(slots=True, frozen=True)
class BearerMessage:
    """What the client said first."""

    token: str = field(repr=False)
    authzid: str  # empty, or who the client wants to be: it must be who the token says it is
    extensions: Mapping[str, str]


def read_message(message: bytes) -> BearerMessage:
    """LoginRefused if it cannot be read."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise LoginRefused(f"a message of {len(message)} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("a message that is not text") from None
    header, *pairs = text.split(SEPARATOR)
    found = _HEADER.fullmatch(header)
    # each pair ends with a separator, and the message with one more
    if found is None or len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise LoginRefused("a message without header, pairs or end")
    try:
        authzid = unescape_name(found[1]) if found[1] else ""
    except ValueError:
        raise LoginRefused("the authorization id cannot be read") from None
    if len(pairs) - 2 > 1 + EXTENSIONS_MAX:
        raise LoginRefused(f"a message with {len(pairs) - 2} pairs")
    values = _read_pairs(pairs[:-2])
    credentials = _AUTH.fullmatch(values.pop("auth", ""))
    if credentials is None or credentials[1].lower() != "bearer":
        raise LoginRefused("a message without a bearer token")
    return BearerMessage(credentials[2], authzid, values)


def _read_pairs(pairs: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key in values:
            raise LoginRefused("a pair that cannot be read, or is there twice")
        values[key] = value
    return values


class BearerLogin:
    """One login, from the broker's side. It keeps no token: a client that has not logged in may stay as it is
    for long.
    """

    def __init__(self) -> None:
        self._has_read = False
        self._authzid = ""
        self._refusal = ""  # why the token was refused; the client has yet to acknowledge it
        self._error = b""  # what it was told
        self._is_over = False

    def read(self, message: bytes) -> BearerMessage:
        """The client's message. LoginRefused if it cannot be read, or acknowledges a refusal."""
        if self._refusal:
            self._is_over = True
            raise LoginRefused(self._refusal, told=self._error.decode())
        if self._has_read or self._is_over:
            self._is_over = True
            raise LoginRefused("a message that is not expected")
        self._has_read = True
        try:
            read = read_message(message)
        except LoginRefused:
            self._is_over = True
            raise
        self._authzid = read.authzid
        return read

    def accept(self, principal: str) -> bytes:
        """The token is valid, and says that it belongs to this principal: the broker's last, empty answer."""
        assert self._has_read
        assert not self._is_over
        self._is_over = True
        if self._authzid not in ("", principal):
            raise LoginRefused("the client asks to act for another user")
        return b""

    def refuse(self, reason: str, error: bytes) -> bytes:
        """The token is not valid, for a reason that goes to the log: what to answer (see `error_json`)."""
        assert self._has_read
        assert not self._is_over
        self._authzid = ""
        self._refusal = reason
        self._error = error
        return error


def error_json(status: str = "invalid_token", *, scope: str = "", openid_configuration: str = "") -> bytes:
    """RFC 7628 §3.2.2. The status is one of RFC 6750 §3.1: invalid_token, or insufficient_scope."""
    said = {"status": status}
    if scope:
        said["scope"] = scope
    if openid_configuration:
        said["openid-configuration"] = openid_configuration
    return json.dumps(said, separators=(",", ":")).encode()


@dataclass(slots=True, frozen=True)
class ClaimRules:
    """What the claims of a token must be: Kafka's settings sasl.oauthbearer.*"""

    issuer: str | None = None  # expected.issuer; None: any
    audiences: frozenset[str] = frozenset()  # expected.audience: the token has to name one
    scopes: frozenset[str] = frozenset()  # the token has to have all
    clock_skew_s: float = 30.0
    subject_claim: str = "sub"
    scope_claim: str = "scope"


@dataclass(slots=True, frozen=True)
class Bearer:
    """Who a token belongs to, and until when."""

    name: str
    expires_ms: int
    issued_ms: int
    scopes: frozenset[str]


def check_claims(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> Bearer:
    """The bearer of a token whose signature is good. LoginRefused if a claim is missing or wrong."""
    now, skew = now_ms / 1000, rules.clock_skew_s
    expires = moment(claims, "exp")
    issued = moment(claims, "iat")
    not_before = moment(claims, "nbf") if "nbf" in claims else issued
    if now - skew >= expires:
        raise LoginRefused("the token has expired")
    if now + skew < not_before:
        raise LoginRefused("the token is not valid yet")
    if now + skew < issued:
        raise LoginRefused("the token was issued in the future")
    if expires < issued or expires < not_before:
        raise LoginRefused("the token expires before it begins")
    _check_issuer(claims, rules)
    _check_audience(claims, rules)
    scopes = _scopes(claims.get(rules.scope_claim))
    if not rules.scopes <= scopes:
        raise LoginRefused("the token does not have the scope that is required")
    name = claims.get(rules.subject_claim)
    if not isinstance(name, str) or not (name := name.strip(_BLANKS)):
        raise LoginRefused(f"the token has no {rules.subject_claim}")
    if len(name) > NAME_CHARACTERS_MAX or not _is_text(name):
        raise LoginRefused(f"the token's {rules.subject_claim} is too long, or is not text")
    return Bearer(name, int(expires * 1000), int(issued * 1000), scopes)


def _is_text(name: str) -> bool:
    """JSON can write halves of characters, which no message can carry."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def moment(claims: Mapping[str, Any], key: str) -> float:
    """NumericDate of RFC 7519: seconds, perhaps with a fraction."""
    value = claims.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LoginRefused(f"the token has no {key}, or one that is not a number")
    if not 0 <= value < 2**53:  # which no number that is not finite is
        raise LoginRefused(f"the token's {key} is out of bounds")
    return value


def _check_issuer(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    issuer = claims.get("iss")
    if issuer is not None and not isinstance(issuer, str):
        raise LoginRefused("the token's iss is not a text")
    if rules.issuer is not None and issuer != rules.issuer:
        raise LoginRefused("the token was issued by somebody else")


def _check_audience(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    """A token that is meant for somebody is refused as well where nobody is expected: it could be meant for
    another service of the same issuer. Kafka does the same.
    """
    said = claims.get("aud")
    audiences = [said] if isinstance(said, str) else said
    if audiences is None:
        if rules.audiences:
            raise LoginRefused("the token has no aud")
        return
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise LoginRefused("the token's aud is neither a text nor a list of texts")
    if rules.audiences.isdisjoint(audiences):
        raise LoginRefused("the token is meant for another audience")


def _scopes(said: object) -> frozenset[str]:
    """From a text with blanks between them, or a list; no scope at all is allowed."""
    if said is None:
        return frozenset()
    parts = said.split() if isinstance(said, str) else said
    if not isinstance(parts, list) or not all(isinstance(one, str) for one in parts):
        raise LoginRefused("the token's scope is neither a text nor a list of texts")
    return frozenset(part.strip() for part in parts if part.strip())
