"""Bugs of logins, planted one by one: the tests that look for them find each of them."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import pytest

from headrace.base.time import Now
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import Plain
from headrace.machines.security import bearer_tokens, json_web_tokens, scram, signing_keys
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.json_web_tokens import SignedToken
from headrace.machines.security.oauthbearer import BearerLogin, check_claims
from headrace.machines.security.scram import ScramLogin
from headrace.machines.security.signing_keys import SigningKeys
from headrace.node.connection import ANONYMOUS
from headrace.node.key_source import KeySource
from headrace.node.login import Login
from headrace.node.login_exchanges import Entered
from headrace.node.logins import Logins
from headrace.node.token_requests import TokenRequests
from unit.machines.security import test_bearer_tokens, test_scram
from unit.node import test_bearer_logins, test_delegation_tokens, test_logins, test_sessions_on_fast_paths

Patch = pytest.MonkeyPatch

_enter, _verify = Login._enter, SigningKeys.verify


def kid_ignored(patch: Patch) -> None:
    """Any key of the set will do."""

    def verify(self: SigningKeys, token: SignedToken) -> None:
        check = signing_keys._algorithms()[token.algorithm]
        fitting = [key for key in self._keys if token.algorithm in key.algorithms]
        if not any(check.verify(token.signed, key.public, token.signature) for key in fitting):
            raise LoginRefused("wrong")

    patch.setattr(SigningKeys, "verify", verify)


def header_decides(patch: Patch) -> None:
    """A token without a signature is believed if it says so."""

    def verify(self: SigningKeys, token: SignedToken) -> None:
        if token.algorithm.lower() != "none":
            _verify(self, token)

    patch.setattr(SigningKeys, "verify", verify)


def signature_unchecked(patch: Patch) -> None:
    patch.setattr(SigningKeys, "verify", lambda self, token: None)


def last_key_of_json_counts(patch: Patch) -> None:
    patch.setattr(json_web_tokens, "_once", dict)


def claims_unchecked(patch: Patch) -> None:
    """Of a token that has expired."""
    check = check_claims
    patch.setattr(
        bearer_tokens, "check_claims", lambda claims, rules, now_ms: check(claims, rules, now_ms - 3_600_000)
    )


def nonce_unchecked(patch: Patch) -> None:
    """Only the client's half."""

    class NoCheck:
        digest = staticmethod(hmac.digest)

        @staticmethod
        def compare_digest(left: bytes, right: bytes) -> bool:
            return left == right or (left[:5] == right[:5] and len(left) != scram.SHA_256.digest_bytes)

    patch.setattr(scram, "hmac", NoCheck)


def authzid_accepted(patch: Patch) -> None:
    patch.setattr(ScramLogin, "_check_authzid", lambda self, authzid, user: None)


def authzid_of_a_token_accepted(patch: Patch) -> None:
    patch.setattr(BearerLogin, "accept", lambda self, principal: b"")


def login_again_as_another(patch: Patch) -> None:
    def enter(self: Login, now: Now, entered: Entered) -> Any:
        if self._is_again:
            self._connection.principal = f"User:{entered.user}"
        return _enter(self, now, entered)

    patch.setattr(Login, "_enter", enter)


def session_without_end(patch: Patch) -> None:
    patch.setattr(Logins, "begin_session", lambda self, until, session: None)


def session_ends_behind_fast_paths(patch: Patch) -> None:
    """The gate is closed, and what was learned stays in front of it."""

    def close_gate(self: Login) -> None:
        if self._connection.fast_path is None:
            self._connection.fast_path = self
        self._connection.frame_bytes_max = self._settings.frame_bytes_max

    patch.setattr(Login, "_close_gate", close_gate)


def token_expiry_ignored(patch: Patch) -> None:
    patch.setattr(
        Login, "_session_ms", lambda self, now, entered: self._settings.session_ms[self._mechanism] or None
    )


def every_unknown_key_is_fetched(patch: Patch) -> None:
    patch.setattr("headrace.node.key_source.UNKNOWN_KEY_EVERY_S", 0.0)


def keys_are_dropped_on_failure(patch: Patch) -> None:
    fetched = KeySource._fetched

    def drop(self: KeySource, now: Now, result: object) -> None:
        if isinstance(result, Exception):
            self.keys = SigningKeys()
        fetched(self, now, result)

    patch.setattr(KeySource, "_fetched", drop)


def tokens_make_tokens(patch: Patch) -> None:
    patch.setattr(
        TokenRequests,
        "allows",
        lambda self, connection: (
            connection.principal != ANONYMOUS and self._protocols[connection.listener] != "PLAINTEXT"
        ),
    )


def ended_tokens_stay(patch: Patch) -> None:
    patch.setattr(Logins, "committed", lambda self, now, image, records: None)


BUGS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (kid_ignored, test_bearer_tokens.TestForgedTokens().test_another_kid),
    (header_decides, lambda: test_bearer_tokens.TestForgedTokens().test_without_a_signature("none")),
    (signature_unchecked, test_bearer_tokens.TestForgedTokens().test_signed_by_somebody_else),
    (last_key_of_json_counts, test_bearer_tokens.TestMalformedTokens().test_a_key_twice),
    (
        claims_unchecked,
        lambda: test_bearer_tokens.TestClaims().test_claims_that_are_refused(
            {"exp": test_bearer_tokens.NOW - 31}, "expired"
        ),
    ),
    (nonce_unchecked, test_scram.TestRefusals().test_the_whole_nonce_is_checked),
    (authzid_accepted, test_scram.TestRefusals().test_nobody_acts_for_somebody_else),
    (
        authzid_of_a_token_accepted,
        lambda: test_bearer_logins.TestRefusals().test_nobody_acts_for_somebody_else("n,a=admin,", False),
    ),
    (
        login_again_as_another,
        lambda: test_logins.TestSessions().test_a_login_as_another_is_refused(
            Plain("bob", "bobs"), "another user"
        ),
    ),
    (
        login_again_as_another,
        test_bearer_logins.TestWhoGetsIn().test_a_login_again_as_somebody_else_is_refused,
    ),
    (session_without_end, test_logins.TestSessions().test_who_does_not_log_in_again_is_disconnected),
    *(
        (
            session_ends_behind_fast_paths,
            lambda kind=kind: (
                test_sessions_on_fast_paths.test_the_end_of_a_session_counts_for_the_next_request(kind)
            ),
        )
        for kind in test_sessions_on_fast_paths.KINDS
    ),
    (
        token_expiry_ignored,
        lambda: test_bearer_logins.TestWhoGetsIn().test_the_earlier_end_counts({}, "0", 3_600_000),
    ),
    (token_expiry_ignored, test_delegation_tokens.TestLogins().test_the_session_ends_with_the_token),
    (
        every_unknown_key_is_fetched,
        test_bearer_logins.TestKeys().test_unknown_keys_have_them_fetched_every_ten_seconds_at_the_most,
    ),
    (
        keys_are_dropped_on_failure,
        test_bearer_logins.TestKeys().test_old_keys_stay_when_there_are_no_new_ones,
    ),
    (tokens_make_tokens, test_delegation_tokens.TestRequests().test_nobody_asks_for_tokens_with_a_token),
    (
        ended_tokens_stay,
        lambda: test_delegation_tokens.TestLogins().test_a_token_that_is_ended_ends_its_sessions(-1, 0.0),
    ),
]


@pytest.mark.parametrize(("plant", "look"), BUGS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], look: Callable[[], None], monkeypatch: Patch
) -> None:
    look()
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, AuthenticationFailed)):
        look()
