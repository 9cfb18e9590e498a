"""Delegation tokens (KIP-48): who has logged in lets others act for him for a while, without a password."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.admin.asking import ANY, CONTROLLER, Operation, ask_one, check
from headrace.client.errors import InvalidInput
from headrace.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headrace.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

BROKERS_CHOICE = -1
AT_ONCE = -1


class DelegationToken(NamedTuple):
    """A token: `token_id` is its user name, `hmac` its secret.

    >>> DelegationToken("id", b"secret", "User:ada", "User:ada", 0, 1, 2, []).owner
    'User:ada'
    """

    token_id: str
    hmac: bytes
    owner: str  # as "User:ada"
    requester: str
    issued_ms: int
    expires_ms: int
    expires_ms_max: int  # renewals end here
    renewers: list[str]


def create_token(
    *, owner: str | None = None, renewers: Iterable[str] = (), lifetime_ms: int = BROKERS_CHOICE
) -> Operation[DelegationToken]:
    """Makes a token for oneself, or for another owner; the renewers may prolong it.

    >>> admin.create_token(renewers=["User:scheduler"])  # doctest: +SKIP
    """
    others = list(renewers)
    owner_type, owner_name = (None, None) if owner is None else _principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, others)
        ],
        max_lifetime_ms=lifetime_ms,
    )

    def read(answer: Any) -> DelegationToken:
        check(answer.error_code, subject="a delegation token")
        return DelegationToken(
            answer.token_id,
            answer.hmac,
            f"{answer.principal_type}:{answer.principal_name}",
            f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
            others,
        )

    return (yield from ask_one("creating a delegation token", CONTROLLER, lambda _: request, read))


def renew_token(hmac: bytes, period_ms: int = BROKERS_CHOICE) -> Operation[int]:
    """A token lives on for so long, or as long as the broker's setting says; when it will expire.

    >>> admin.renew_token(token.hmac)  # doctest: +SKIP
    """
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return (yield from ask_one("renewing a token", CONTROLLER, lambda _: request, _expiry))


def expire_token(hmac: bytes, after_ms: int = AT_ONCE) -> Operation[int]:
    """A token ends at once, or after a time; when that is.

    >>> admin.expire_token(token.hmac)  # doctest: +SKIP
    """
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=after_ms)
    return (yield from ask_one("ending a token", CONTROLLER, lambda _: request, _expiry))


def _expiry(answer: Any) -> int:
    check(answer.error_code, subject="the delegation token")
    return int(answer.expiry_timestamp_ms)


def describe_tokens(owners: Iterable[str] | None = None) -> Operation[list[DelegationToken]]:
    """The tokens of some owners, or all that one may see.

    >>> admin.describe_tokens(["User:ada"])  # doctest: +SKIP
    """
    asked = None
    if owners is not None:
        asked = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        ]

    def read(answer: Any) -> list[DelegationToken]:
        check(answer.error_code, subject="delegation tokens")
        return [
            DelegationToken(
                told.token_id,
                told.hmac,
                f"{told.principal_type}:{told.principal_name}",
                f"{told.token_requester_principal_type}:{told.token_requester_principal_name}",
                told.issue_timestamp,
                told.expiry_timestamp,
                told.max_timestamp,
                [f"{one.principal_type}:{one.principal_name}" for one in told.renewers],
            )
            for told in answer.tokens
        ]

    request = DescribeDelegationTokenRequest(owners=asked)
    return (yield from ask_one("describing tokens", ANY, lambda _: request, read))


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidInput(f"{text!r} is no principal: write it as User:{text or 'name'}")
    return kind, name
