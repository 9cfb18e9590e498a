"""Delegation tokens: whatever happens, one lives no longer than it may, and strangers do not change it."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.security.delegation_tokens import (
    DelegationToken,
    DelegationTokens,
    TokenRefused,
    TokenSettings,
)
from headrace.protocol.errors import ErrorCode

PERIODS = st.sampled_from([-5, -1, 0, 1, 50, 100, 101, 1000, 2**62])
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["renew", "expire", "sweep"]),
        st.sampled_from(["User:owner", "User:renewer", "User:stranger"]),
        PERIODS,
        st.integers(0, 150),
    ),
    max_size=20,
)


def expected(token: DelegationToken | None, principal: str, now_ms: int) -> ErrorCode:
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if token.expires_ms < now_ms:
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH if principal == "User:stranger" else ErrorCode.NONE


@given(lifetime_ms=PERIODS, actions=ACTIONS)
def test_a_token_lives_no_longer_than_it_may(
    lifetime_ms: int, actions: list[tuple[str, str, int, int]]
) -> None:
    image: dict[str, DelegationToken] = {}
    tokens = DelegationTokens(TokenSettings("key", lifetime_ms=100, lifetime_ms_max=1000), lambda: image)
    now_ms = 10_000
    token = tokens.create(
        "User:owner",
        owner="User:owner",
        renewers=["User:renewer"],
        lifetime_ms=lifetime_ms,
        now_ms=now_ms,
        rng=random.Random(1),
    )
    image[token.token_id] = token
    secret = tokens.secret(token.token_id)
    for action, principal, period_ms, later in actions:
        now_ms += later
        before = image.get(token.token_id)
        code = ErrorCode.NONE
        try:
            if action == "renew":
                changed = tokens.renew(principal, secret, period_ms, now_ms)
                assert now_ms <= changed.expires_ms <= now_ms + 100
                image[token.token_id] = changed
            elif action == "expire":
                ended = tokens.expire(principal, secret, period_ms, now_ms)
                assert (ended.token is None) == (period_ms < 0)
                if ended.token is None:
                    del image[ended.token_id]
                else:
                    image[ended.token_id] = ended.token
            else:
                for token_id in tokens.expired(now_ms):
                    del image[token_id]
        except TokenRefused as refused:
            code = refused.code
        if action != "sweep":
            assert code == expected(before, principal, now_ms)
        if code:
            assert image.get(token.token_id) == before
        after = image.get(token.token_id)
        if after is not None:
            assert after.max_ms == token.max_ms <= 11_000
            assert after.expires_ms <= after.max_ms
            assert after.is_expired(11_001)
