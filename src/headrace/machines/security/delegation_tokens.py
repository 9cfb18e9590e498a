"""Delegation tokens (KIP-48): who may make, renew and end them, and the login with one.

A token is an id and a secret, the HMAC-SHA-512 of the id with `delegation.token.secret.key`: nobody has to
store it. Whoever has both logs in by SCRAM as the owner, with the id as the user, the secret in base64 as the
password, and the extension `tokenauth=true`.

    create → token --renew, by owner or renewers--> lives until max_ms at most --expire, or in time--> gone

The decisions here change nothing. What was decided is written to the metadata log, and its image has the
tokens.
"""

import hmac
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.base.ids import new_id_text
from headrace.base.randomness import Randomness
from headrace.machines.security.scram import MECHANISMS, SALT_BYTES, Credential, Mechanism
from headrace.protocol.errors import ErrorCode

USER_PREFIX = "User:"

# What was computed of tokens that are gone is dropped when there is more of it.
KEPT_OF_GONE_MAX = 1000


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

    @property
    def ends_ms(self) -> int:
        return min(self.expires_ms, self.max_ms)

    def is_expired(self, now_ms: int) -> bool:
        return now_ms > self.ends_ms

    def belongs_to(self, principal: str) -> bool:
        """Whether it is the owner, or may renew the token."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether it is one of those, or has asked for the token: it may see it."""
        return principal == self.requester or self.belongs_to(principal)


class Expiry(NamedTuple):
    """The decision to end a token."""

    token_id: str
    token: DelegationToken | None  # with its new end; None: it is to be removed
    expires_ms: int


class TokenRefused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.text)
        self.code = code


class DelegationTokens:
    """The tokens of an image of the metadata, which changes under it."""

    def __init__(self, settings: TokenSettings, tokens: Callable[[], Mapping[str, DelegationToken]]) -> None:
        """`tokens` returns those of now, by id."""
        self._settings = settings
        self._tokens = tokens
        self._ids: dict[bytes, str] = {}  # by the secret, of tokens that were asked for; some may be gone
        self._credentials: dict[tuple[str, str], Credential] = {}  # of tokens that were used; the same

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
            return Expiry(token.token_id, None, now_ms)
        shortened = replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))
        return Expiry(token.token_id, shortened, shortened.expires_ms)

    def expired(self, now_ms: int) -> list[str]:
        """The ids of tokens that are to be removed."""
        return sorted(token.token_id for token in self._tokens().values() if token.is_expired(now_ms))

    # --- questions -----------------------------------------------------------------------------------

    @property
    def is_enabled(self) -> bool:
        return bool(self._settings.secret_key)

    def secret(self, token_id: str) -> bytes:
        self._check_enabled()
        key = self._settings.secret_key or ""
        return hmac.digest(key.encode(), token_id.encode(), "sha512")

    def usable(self, token_id: str, now_ms: int) -> DelegationToken | None:
        """The token that one can log in with; None if there is none, or it has expired."""
        token = self._tokens().get(token_id)
        return None if token is None or token.is_expired(now_ms) or not self.is_enabled else token

    def visible(
        self,
        principal: str,
        owners: Iterable[str] | None,
        may_describe: Callable[[DelegationToken], bool],
    ) -> list[DelegationToken]:
        """Those of some owners, or all, that the principal may see: its own, those that it has asked for or
        may renew, and those that the authorizer allows.
        """
        self._check_enabled()
        wanted = None if owners is None else list(owners)
        return [
            token
            for _, token in sorted(self._tokens().items())
            if (wanted is None or any(token.concerns(owner) for owner in wanted))
            and (token.concerns(principal) or may_describe(token))
        ]

    def credential(self, token_id: str, mechanism: Mechanism) -> Credential | None:
        """For a login with the token, if `keep` has got it."""
        return self._credentials.get((token_id, mechanism.name))

    def password(self, token_id: str) -> str:
        """Of the SCRAM login with the token."""
        return b64encode(self.secret(token_id)).decode()

    def salt(self, token_id: str, mechanism: Mechanism) -> bytes:
        """The same on all nodes."""
        return hmac.digest(self.secret(token_id), mechanism.name.encode(), "sha256")[:SALT_BYTES]

    def keep(self, token_id: str, mechanism: Mechanism, credential: Credential) -> None:
        """Until the token has gone."""
        known = self._tokens()
        if len(self._credentials) > 2 * len(MECHANISMS) * (len(known) + KEPT_OF_GONE_MAX):
            self._credentials = {key: one for key, one in self._credentials.items() if key[0] in known}
        self._credentials[token_id, mechanism.name] = credential

    def _usable(self, principal: str, secret: bytes, now_ms: int) -> DelegationToken:
        self._check_enabled()
        token = self._with_secret(secret)
        if token is None:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if token.is_expired(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not token.belongs_to(principal):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _with_secret(self, secret: bytes) -> DelegationToken | None:
        tokens = self._tokens()
        if secret not in self._ids:
            for token_id in tokens.keys() - self._ids.values():
                self._ids[self.secret(token_id)] = token_id
            if len(self._ids) > len(tokens) + KEPT_OF_GONE_MAX:
                self._ids = {one: token_id for one, token_id in self._ids.items() if token_id in tokens}
        return tokens.get(self._ids.get(secret, ""))

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _is_user(principal: str) -> bool:
    return principal.startswith(USER_PREFIX) and principal != USER_PREFIX


def _at_most(limit: int, asked: int) -> int:
    return min(limit, asked) if asked > 0 else limit
