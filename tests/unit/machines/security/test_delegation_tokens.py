"""Delegation tokens: their times, who may change them, and the login with one."""

from __future__ import annotations

import hashlib
import hmac
import random
from base64 import b64encode
from typing import Any

import pytest

from headrace.client.security.sasl import ScramExchange
from headrace.machines.security.delegation_tokens import (
    KEPT_OF_GONE_MAX,
    DelegationToken,
    DelegationTokens,
    TokenRefused,
    TokenSettings,
)
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.scram import (
    SHA_256,
    SHA_512,
    Credential,
    Mechanism,
    ScramLogin,
    credential_from_password,
    new_nonce,
)
from headrace.protocol.errors import ErrorCode

ADA, BOB, EVE = "User:ada", "User:bob", "User:eve"
NOW = 1_700_000_000_000
DAY = 86_400_000
SETTINGS = TokenSettings("a secret key", lifetime_ms=DAY, lifetime_ms_max=7 * DAY)


class Cluster:
    """Tokens whose decisions are replayed at once."""

    def __init__(self, settings: TokenSettings = SETTINGS) -> None:
        self.image: dict[str, DelegationToken] = {}
        self.tokens = DelegationTokens(settings, lambda: self.image)
        self.rng = random.Random(7)

    def create(self, **changes: Any) -> DelegationToken:
        asked = {"owner": ADA, "renewers": [BOB], "lifetime_ms": -1, "now_ms": NOW, **changes}
        token = self.tokens.create(asked.pop("requester", ADA), rng=self.rng, **asked)
        self.image[token.token_id] = token
        return token

    def renew(
        self, token: DelegationToken, principal: str = ADA, period_ms: int = -1, now_ms: int = NOW
    ) -> int:
        renewed = self.tokens.renew(principal, self.tokens.secret(token.token_id), period_ms, now_ms)
        self.image[token.token_id] = renewed
        return renewed.expires_ms

    def expire(
        self, token: DelegationToken, principal: str = ADA, period_ms: int = -1, now_ms: int = NOW
    ) -> int:
        ended = self.tokens.expire(principal, self.tokens.secret(token.token_id), period_ms, now_ms)
        if ended.token is None:
            del self.image[ended.token_id]
        else:
            self.image[ended.token_id] = ended.token
        return ended.expires_ms


def code(raised: pytest.ExceptionInfo[TokenRefused]) -> ErrorCode:
    return raised.value.code


class TestTimes:
    def test_a_new_token(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        assert (token.issued_ms, token.expires_ms, token.max_ms) == (NOW, NOW + DAY, NOW + 7 * DAY)
        assert (token.owner, token.requester, token.renewers) == (ADA, ADA, (BOB,))
        assert len(token.token_id) == 22

    @pytest.mark.parametrize(
        ("asked", "expires", "latest"),
        [(0, DAY, 7 * DAY), (DAY // 2, DAY // 2, DAY // 2), (2 * DAY, DAY, 2 * DAY), (2**62, DAY, 7 * DAY)],
    )
    def test_a_lifetime_that_was_asked_for(self, asked: int, expires: int, latest: int) -> None:
        token = Cluster().create(lifetime_ms=asked)
        assert (token.expires_ms - NOW, token.max_ms - NOW) == (expires, latest)

    def test_renewals_end(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        for day in range(1, 7):
            assert cluster.renew(token, now_ms=NOW + day * DAY) == NOW + (day + 1) * DAY
        assert cluster.renew(token, now_ms=NOW + 7 * DAY) == NOW + 7 * DAY
        with pytest.raises(TokenRefused) as raised:
            cluster.renew(token, now_ms=NOW + 7 * DAY + 1)
        assert code(raised) == ErrorCode.DELEGATION_TOKEN_EXPIRED

    def test_a_renewal_is_for_the_brokers_time_at_most(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        assert cluster.renew(token, period_ms=5) == NOW + 5
        assert cluster.renew(token, period_ms=2 * DAY) == NOW + DAY
        assert cluster.renew(token, period_ms=0) == NOW + DAY

    def test_an_end_in_some_time(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        assert cluster.expire(token, period_ms=500) == NOW + 500
        assert cluster.expire(token, period_ms=2**62) == NOW + 7 * DAY
        assert cluster.expire(token, period_ms=0) == NOW
        assert cluster.tokens.expired(NOW) == []
        assert cluster.tokens.expired(NOW + 1) == [token.token_id]

    def test_an_end_at_once(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        assert cluster.expire(token, period_ms=-1) == NOW
        assert not cluster.image
        with pytest.raises(TokenRefused) as raised:
            cluster.renew(token)
        assert code(raised) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class TestRefusals:
    @pytest.mark.parametrize("action", ["renew", "expire"])
    def test_only_the_owner_and_renewers_change_a_token(self, action: str) -> None:
        """Not even who asked for it on behalf of the owner."""
        cluster = Cluster()
        token = cluster.create(requester=EVE)
        for principal in (ADA, BOB):
            getattr(cluster, action)(token, principal, 5)
        for principal in (EVE, "User:", "ada"):
            with pytest.raises(TokenRefused) as raised:
                getattr(cluster, action)(token, principal, 5)
            assert code(raised) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

    @pytest.mark.parametrize("secret", [b"", b"x" * 64])
    def test_a_secret_that_is_not_one(self, secret: bytes) -> None:
        cluster = Cluster()
        cluster.create()
        with pytest.raises(TokenRefused) as raised:
            cluster.tokens.renew(ADA, secret, -1, NOW)
        assert code(raised) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    @pytest.mark.parametrize("principal", ["Group:x", "x", "User:", ""])
    def test_principals_are_users(self, principal: str) -> None:
        for changes in ({"renewers": [BOB, principal]}, {"owner": principal}):
            with pytest.raises(TokenRefused) as raised:
                Cluster().create(**changes)
            assert code(raised) == ErrorCode.INVALID_PRINCIPAL_TYPE

    @pytest.mark.parametrize("key", [None, ""])
    def test_without_a_key_there_are_no_tokens(self, key: str | None) -> None:
        cluster = Cluster(TokenSettings(key))
        for asked in (
            cluster.create,
            lambda: cluster.tokens.renew(ADA, b"x", -1, NOW),
            lambda: cluster.tokens.expire(ADA, b"x", -1, NOW),
            lambda: cluster.tokens.visible(ADA, None, lambda _: True),
        ):
            with pytest.raises(TokenRefused) as raised:
                asked()
            assert code(raised) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        token = Cluster().create()  # of a time when there was one
        cluster.image[token.token_id] = token
        assert cluster.tokens.usable(token.token_id, NOW) is None

    def test_the_key_is_not_printed(self) -> None:
        assert "secret key" not in repr(SETTINGS)


class TestSecrets:
    def test_the_secret_is_the_hmac_of_the_id(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        assert (
            cluster.tokens.secret(token.token_id)
            == hmac.new(b"a secret key", token.token_id.encode(), hashlib.sha512).digest()
        )

    @pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
    def test_a_login_with_a_token(self, mechanism: Mechanism) -> None:
        cluster = Cluster()
        token = cluster.create()
        password = b64encode(cluster.tokens.secret(token.token_id)).decode()
        assert cluster.tokens.password(token.token_id) == password
        salt = cluster.tokens.salt(token.token_id, mechanism)
        made = credential_from_password(mechanism, password, salt)
        assert cluster.tokens.credential(token.token_id, mechanism) is None
        cluster.tokens.keep(token.token_id, mechanism, made)
        for tried, is_right in ((password, True), (password[:-4] + "AA==", False)):
            client = ScramExchange(
                mechanism, token.token_id, tried, new_nonce(cluster.rng), {"tokenauth": "true"}
            )
            server = ScramLogin(mechanism, cluster.rng, b"secret")
            first = server.read_first(client.first())
            assert first.is_token
            final = client.answer(server.challenge(cluster.tokens.credential(first.user, mechanism)))
            assert final is not None
            if is_right:
                assert client.answer(server.finish(final)) is None
            else:
                with pytest.raises(LoginRefused):
                    server.finish(final)

    def test_expired_and_removed_tokens_log_nobody_in(self) -> None:
        cluster = Cluster()
        token = cluster.create()
        assert cluster.tokens.usable(token.token_id, NOW + DAY) == token
        assert cluster.tokens.usable(token.token_id, NOW + DAY + 1) is None
        cluster.expire(token)
        assert cluster.tokens.usable(token.token_id, NOW) is None

    def test_a_new_token_is_found_when_another_has_gone(self) -> None:
        cluster = Cluster()
        first = cluster.create()
        cluster.renew(first)
        cluster.expire(first)
        second = cluster.create()
        assert cluster.renew(second) == NOW + DAY

    def test_what_was_computed_of_tokens_that_are_gone_is_dropped(self) -> None:
        cluster = Cluster()
        made = Credential(b"salt", b"stored", b"server", 4096)
        for _ in range(6 * KEPT_OF_GONE_MAX):
            token = cluster.create()
            cluster.renew(token)
            cluster.tokens.keep(token.token_id, SHA_256, made)
            cluster.expire(token)
        assert len(cluster.tokens._ids) <= KEPT_OF_GONE_MAX + 1
        assert len(cluster.tokens._credentials) <= 5 * KEPT_OF_GONE_MAX


class TestDescribe:
    def test_who_sees_which_tokens(self) -> None:
        cluster = Cluster()
        mine, other = cluster.create(), cluster.create(owner=EVE, renewers=[], requester=ADA)

        def seen(
            principal: str, owners: list[str] | None = None, *, may: bool = False
        ) -> set[DelegationToken]:
            return set(cluster.tokens.visible(principal, owners, lambda _: may))

        assert seen(ADA) == {mine, other}, "she has asked for the other one"
        assert seen(BOB) == {mine}
        assert seen(EVE) == {other}
        assert seen("User:mallory") == set()
        assert seen("User:mallory", may=True) == {mine, other}
        assert seen("User:mallory", [ADA], may=True) == {mine, other}
        assert seen("User:mallory", [BOB], may=True) == {mine}
        assert seen(BOB, [EVE]) == set()
        assert seen(ADA, []) == set()
