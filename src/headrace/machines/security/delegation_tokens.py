"""Delegation tokens (KIP-48): who may make, renew and end them, and the login with one.

A token is an id and a secret, the HMAC-SHA-512 of the id with `delegation.token.secret.key`: nobody has to
store it. Whoever has both logs in by SCRAM as the owner, with the id as the user, the secret in base64 as the
password, and the extension `tokenauth=true`.

    create → token --renew, by owner or renewers--> lives until max_ms at most --expire, or in time--> gone

The decisions here change nothing. What was decided is written to the metadata log, and `replay` and `forget`
apply it.
"""

import hmac
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.base.ids import new_id_text
from headrace.base.randomness import Randomness
from headrace.machines.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    SALT_BYTES,
    Credential,
    Mechanism,
    credential_from_password,
)
from headrace.protocol.errors import ErrorCode

USER_PREFIX = "User:"


@dataclass(slots=True, frozen=True)
class TokenSettings:
    secret_key: str | None = field(default=None, repr=False)  # delegation.token.secret.key; None: no tokens
    lifetime_ms: int = 86_400_000  # delegation.token.expiry.time.ms: until a token has to be renewed
    lifetime_ms_max: int = 604_800_000  # delegation.token.max.lifetime.ms: with all renewals


@dataclass(slots=True, frozen=True)
class DelegationToken:
    token_id: str
    owner: str  # as User:alice
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int  # when renewals end

    def is_expired(self, now_ms: int) -> bool:
        return now_ms > self.expires_ms or now_ms > self.max_ms

    def belongs_to(self, principal: str) -> bool:
        """Whether it is the owner, or may renew the token."""
        return principal == self.owner or principal in self.renewers


class Expiry(NamedTuple):
    """The decision to end a token."""

    token_id: str
    token: DelegationToken | None  # with its new end; None: it is to be removed
    expires_ms: int  # for the answer: the negative period of a token that is removed, as in Kafka


class TokenRefused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.text)
        self.code = code


class DelegationTokens:
    def __init__(self, settings: TokenSettings) -> None:
        self._settings = settings
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}  # by the secret
        self._credentials: dict[tuple[str, str], Credential] = {}  # of tokens that were used

    # --- decisions -----------------------------------------------------------------------------------

    def create(
        self,
        requester: str,
        *,
        owner: str,
        renewers: Iterable[str],
        lifetime_ms: int,
        now_ms: int,
        rng: Randomness,
    ) -> DelegationToken:
        """A lifetime of 0 or less is the broker's choice. Whether the requester may make tokens for the owner
        is a question for the authorizer.
        """
        self._check_enabled()
        allowed = tuple(renewers)
        if not all(_is_user(principal) for principal in (owner, *allowed)):
            raise TokenRefused(ErrorCode.INVALID_PRINCIPAL_TYPE)
        settings = self._settings
        max_ms = now_ms + _at_most(settings.lifetime_ms_max, lifetime_ms)
        expires_ms = min(max_ms, now_ms + settings.lifetime_ms)
        return DelegationToken(new_id_text(rng), owner, requester, allowed, now_ms, expires_ms, max_ms)

    def renew(self, principal: str, secret: bytes, period_ms: int, now_ms: int) -> DelegationToken:
        """A period of 0 or less is the broker's choice."""
        token = self._usable(principal, secret, now_ms)
        period_ms = _at_most(self._settings.lifetime_ms, period_ms)
        return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

    def expire(self, principal: str, secret: bytes, period_ms: int, now_ms: int) -> Expiry:
        """A negative period ends the token at once."""
        token = self._usable(principal, secret, now_ms)
        if period_ms < 0:
            return Expiry(token.token_id, None, period_ms)
        shortened = replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))
        return Expiry(token.token_id, shortened, shortened.expires_ms)

    def expired(self, now_ms: int) -> list[str]:
        """The ids of tokens that are to be removed."""
        return sorted(token.token_id for token in self._tokens.values() if token.is_expired(now_ms))

    # --- questions -----------------------------------------------------------------------------------

    @property
    def is_enabled(self) -> bool:
        return bool(self._settings.secret_key)

    def secret(self, token_id: str) -> bytes:
        self._check_enabled()
        key = self._settings.secret_key or ""
        return hmac.digest(key.encode(), token_id.encode(), "sha512")

    def get(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    def visible(
        self,
        principal: str,
        owners: Iterable[str] | None,
        may_describe: Callable[[DelegationToken], bool],
    ) -> list[DelegationToken]:
        """Those of some owners, or all, that the principal may see: its own, those that it may renew, and
        those that the authorizer allows.
        """
        self._check_enabled()
        wanted = None if owners is None else list(owners)
        return [
            token
            for _, token in sorted(self._tokens.items())
            if (wanted is None or any(token.belongs_to(owner) for owner in wanted))
            and (token.belongs_to(principal) or may_describe(token))
        ]

    def credential(self, token_id: str, mechanism: Mechanism, now_ms: int) -> Credential | None:
        """For a login with the token; None if there is no such token, or it has expired.

        The first time takes the milliseconds of PBKDF2, as many iterations as SCRAM requires.
        """
        token = self._tokens.get(token_id)
        if token is None or token.is_expired(now_ms) or not self.is_enabled:
            return None
        made = self._credentials.get((token_id, mechanism.name))
        if made is None:
            secret = self.secret(token_id)
            salt = hmac.digest(secret, mechanism.name.encode(), "sha256")[:SALT_BYTES]
            password = b64encode(secret).decode()
            made = credential_from_password(mechanism, password, salt, ITERATIONS_MIN)
            self._credentials[token_id, mechanism.name] = made
        return made

    # --- the metadata log ----------------------------------------------------------------------------

    def replay(self, token: DelegationToken) -> None:
        self._tokens[token.token_id] = token
        if self.is_enabled:
            self._ids[self.secret(token.token_id)] = token.token_id

    def forget(self, token_id: str) -> None:
        if self._tokens.pop(token_id, None) is not None and self.is_enabled:
            del self._ids[self.secret(token_id)]
        for name in MECHANISMS:
            self._credentials.pop((token_id, name), None)

    def __len__(self) -> int:
        return len(self._tokens)

    def _usable(self, principal: str, secret: bytes, now_ms: int) -> DelegationToken:
        self._check_enabled()
        token_id = self._ids.get(secret)
        if token_id is None:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = self._tokens[token_id]
        if token.is_expired(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.belongs_to(principal):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _is_user(principal: str) -> bool:
    return principal.startswith(USER_PREFIX) and principal != USER_PREFIX


def _at_most(limit: int, asked: int) -> int:
    return min(limit, asked) if asked > 0 else limit
